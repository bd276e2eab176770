"""Stripe's double, its webhooks, and who takes them in. Runs in workers."""

import dataclasses
import time
from contextlib import ExitStack
from typing import Any

from django.conf import settings
from django.db.models import Sum
from django.utils import timezone

from billing.credit.models import Payment
from billing.payments.inbox import process_inbox
from billing.payments.models import StripeEvent, StripePayment
from billing.payments.services.asking import ask
from billing.payments.services.sessions import open_checkout
from control.db.models import new_id
from control.organizations.models import Organization
from control.permissions import Actor
from tests.fixtures.paying import send
from tests.fixtures.stripe_server import running_stripe, storm
from tests.simulation.stripe_double import KEYS, StripeDouble

EVENTS_A_PAYMENT = 4
IDLE_SECONDS_MAX = 30.0
"""How long nothing may be done before what is missing is taken for lost."""
_open = ExitStack()


def prepare(event_count: int) -> tuple[str, list[dict[str, Any]], int]:
    """Run Stripe, let customers pay on its pages, and return where it is, the events of that, and
    how many cents they paid. None was delivered yet."""
    double = _open.enter_context(running_stripe())
    _point_at(double.url)
    owners = list(Organization.objects.values_list("id", flat=True))
    for number in range(event_count // EVENTS_A_PAYMENT):
        _pay(double, owners[number % len(owners)], number)
    told = [each for each in double.events if each["type"] != "customer.created"]
    return double.url, told, sum(each["amount"] for each in double.succeeded())


def post(url: str, events: list[dict[str, Any]], times: int, part: int, parts: int) -> list[float]:
    """Deliver this part of the storm; return what each answer took, in milliseconds."""
    _point_at(url)
    took = []
    for event in list(storm(events, seed=7, times=times))[part::parts]:
        began = time.perf_counter()
        if send(event) != 200:
            raise AssertionError("a webhook was refused")
        took.append((time.perf_counter() - began) * 1000)
    return took


def look(url: str, event_count: int) -> int:
    """Look at what events name until so many were done, or none was for a while; return how many
    were."""
    _point_at(url)
    done, idle_since = 0, time.monotonic()
    while done < event_count and time.monotonic() - idle_since < IDLE_SECONDS_MAX:
        more = process_inbox(now=timezone.now())
        done += more
        if more:
            idle_since = time.monotonic()
        else:
            time.sleep(0.02)
    return done


def count() -> tuple[int, int, int, int]:
    """Return the events that are there, those that wait, the cents booked, and the payments."""
    waiting = StripeEvent.objects.filter(processed_at__isnull=True).count()
    nanos = Payment.objects.aggregate(nanos=Sum("amount_nanos"))["nanos"] or 0
    paid = StripePayment.objects.filter(status="succeeded").count()
    return StripeEvent.objects.count(), waiting, nanos // 10_000_000, paid


def send_again(url: str, events: list[dict[str, Any]]) -> int:
    """Deliver some events once more, after which nothing may wait; return the cents booked."""
    _point_at(url)
    for event in events:
        send(event)
    process_inbox(now=timezone.now())
    return count()[2]


def end() -> None:
    """End Stripe."""
    _open.close()


def _point_at(url: str) -> None:
    keys = dataclasses.replace(KEYS, api_base=url)
    settings.CONFIG = dataclasses.replace(settings.CONFIG, stripe=keys)


def _pay(double: StripeDouble, organization_id: str, number: int) -> None:
    now = timezone.now()
    wanted = StripePayment(
        organization_id=organization_id,
        mode="test",
        purpose="top_up",
        amount_cents=1_000 + number % 997,
        idempotency_key=new_id("k"),
        requested_by="benchmark",
        created_at=now,
    )
    payment = open_checkout(ask(wanted, actor=Actor.for_system("benchmark"), now=now), now=now)
    double.pay(payment.checkout_id or "")
