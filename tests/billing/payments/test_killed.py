"""A worker is killed with SIGKILL while Stripe has done its part and we have not heard of it."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from billing.payments.models import Refund, StripePayment
from billing.payments.services import refund_payment
from tests.fixtures import database
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.paying import ask_top_up, balance_cents, save_card, settle
from tests.fixtures.stripe_server import running_stripe
from tests.simulation.stripe_double import Fault, StripeDouble

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.django_db(transaction=True)]

WORKER = """
import django
django.setup()
from django.utils import timezone
from control.outbox.services import deliver_due
deliver_due(now=timezone.now())
"""
WITHIN_SECONDS = 60


@pytest.fixture
def stripe(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[StripeDouble]:
    """A double that another process can reach."""
    monkeypatch.setattr("billing.payments.waking._send", lambda: None)
    with running_stripe() as double:
        settings.CONFIG = dataclasses.replace(settings.CONFIG, stripe=double.keys)
        yield double


@pytest.fixture
def paying(
    transactional_db: None, org: SeededOrganization, stripe: StripeDouble
) -> SeededOrganization:
    save_card(org, stripe)
    return org


def killed_worker(double: StripeDouble, kind: str) -> None:
    """Run a worker's delivery in a process of its own, and kill it once Stripe has made a thing of
    this kind, and before it answers."""
    environment = {
        **os.environ,
        "DATABASE_URL": database.app_url(),
        "STRIPE_SECRET_KEY": double.keys.secret,
        "STRIPE_PUBLISHABLE_KEY": double.keys.publishable,
        "STRIPE_WEBHOOK_SECRET": double.keys.webhook_secrets[0],
        "STRIPE_API_BASE": double.url,
        "DJANGO_SETTINGS_MODULE": "tests.fixtures.settings",
    }
    process = subprocess.Popen([sys.executable, "-c", WORKER], env=environment)
    ends = time.monotonic() + WITHIN_SECONDS
    while not double.all(kind) and time.monotonic() < ends:
        assert process.poll() is None, "the worker ended by itself"
        time.sleep(0.02)
    process.kill()
    process.wait(60)
    assert double.all(kind), "the worker never asked"


def test_a_payment_is_charged_once(paying: SeededOrganization, stripe: StripeDouble) -> None:
    payment = ask_top_up(paying)
    stripe.faults.append(Fault("slow_after", "payment_intents"))
    killed_worker(stripe, "payment_intent")
    assert StripePayment.objects.get(id=payment.id).status == "created"
    settle(stripe, now=timezone.now() + timedelta(minutes=3))
    assert (len(stripe.succeeded()), balance_cents(paying)) == (1, 5_000)
    assert len(stripe.all("payment_intent")) == 1


def test_a_refund_is_paid_once(paying: SeededOrganization, stripe: StripeDouble) -> None:
    payment = ask_top_up(paying)
    settle(stripe)
    refund_payment(
        payment_id=payment.id, amount_cents=2_000, idempotency_key="r", actor=OPERATOR, reason="",
        now=timezone.now(),
    )  # fmt: skip
    stripe.faults.append(Fault("slow_after", "refunds"))
    killed_worker(stripe, "refund")
    assert Refund.objects.get().status == "created"
    settle(stripe, now=timezone.now() + timedelta(minutes=3))
    assert (len(stripe.all("refund")), balance_cents(paying)) == (1, 3_000)
