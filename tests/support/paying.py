"""Organizations that pay through the Stripe double."""

import dataclasses
import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from billing.credit.selectors import balances_nanos
from billing.payments import syncing
from billing.payments.inbox import process_inbox
from billing.payments.models import PaymentMethod, StripePayment
from billing.payments.selectors import default_method
from billing.payments.services import start_checkout, top_up
from billing.payments.services.sessions import start_method
from billing.simulation.stripe_double import StripeDouble
from billing.simulation.stripe_double.webhooks import signed
from control.outbox.services import deliver_due
from tests.support.organizations import House
from tests.support.stripe_server import running_stripe

WEBHOOK = "/stripe/webhook"
SECRET = "whsec_double"


@contextmanager
def in_place_of_stripe(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[StripeDouble]:
    """Let the operator's keys reach a double, without the library's pauses between repeats."""
    monkeypatch.setattr("stripe._http_client.HTTPClient.INITIAL_DELAY", 0.001)
    monkeypatch.setattr("stripe._http_client.HTTPClient.MAX_DELAY", 0.002)
    monkeypatch.setattr("billing.payments.waking._send", lambda: None)
    with running_stripe() as double:
        settings.CONFIG = dataclasses.replace(settings.CONFIG, stripe=double.keys)
        yield double


def send(event: dict[str, Any], *, secret: str = SECRET, at: float | None = None) -> int:
    """Deliver one event as Stripe does; return the answer's status."""
    body, signature = signed(event, secret, at=at)
    reply = Client().post(
        WEBHOOK, body, content_type="application/json", headers={"stripe-signature": signature}
    )
    return reply.status_code


def deliver(double: StripeDouble, events: Iterable[dict[str, Any]] | None = None) -> None:
    """Deliver events, all that there are by default, and look at what they name."""
    for event in list(double.events if events is None else events):
        assert send(event) == 200
    while process_inbox(now=timezone.now()):
        pass


def settle(double: StripeDouble, *, now: datetime | None = None) -> None:
    """Let the outbox ask, and Stripe's webhooks arrive, until nothing follows."""
    deliver_due(now=now or timezone.now())
    deliver(double)


def save_card(house: House, double: StripeDouble, card: str = "pm_card_visa") -> PaymentMethod:
    """Save a test card as the owner does, on Stripe's page."""
    url = start_method(organization=house.organization, actor=house.actor, now=timezone.now())
    method = double.save(url.rpartition("/")[2], card)
    syncing.sync_method(method["id"], now=timezone.now())
    return PaymentMethod.objects.get(stripe_id=method["id"])


def ask_top_up(house: House, cents: int = 5_000, key: str = "", **changes: Any) -> StripePayment:
    """Ask for a top-up with the default method."""
    method = changes.pop("method", None) or default_method(house.id, "test")
    return top_up(
        organization=house.organization,
        amount_cents=cents,
        method=method,
        idempotency_key=key or str(uuid.uuid4()),
        actor=changes.pop("actor", house.actor),
        now=timezone.now(),
    )


def ask_checkout(house: House, cents: int = 5_000, key: str = "") -> StripePayment:
    """Open a page of Stripe's for a top-up."""
    return start_checkout(
        organization=house.organization,
        amount_cents=cents,
        idempotency_key=key or str(uuid.uuid4()),
        actor=house.actor,
        now=timezone.now(),
    )


def balance_cents(house: House) -> int:
    """Return an organization's balance in whole cents."""
    nanos = balances_nanos([house.id]).get(house.id, 0)
    assert nanos % 10_000_000 == 0, nanos
    return nanos // 10_000_000


def state_of(house: House) -> str:
    """Return all that payments left behind, but for when: equal states are equal text."""
    from billing.ledger.models import Account
    from billing.payments.models import Dispute, Refund

    rows = {
        "payments": sorted(
            StripePayment.objects.filter(organization_id=house.id).values_list(
                "intent_id", "status", "amount_cents", "tax_cents", "failure_code"
            ),
            key=str,
        ),
        "refunds": sorted(
            Refund.objects.filter(organization_id=house.id).values_list(
                "stripe_id", "status", "amount_cents", "tax_cents"
            ),
            key=str,
        ),
        "disputes": sorted(
            Dispute.objects.filter(organization_id=house.id).values_list(
                "stripe_id", "status", "taken_cents"
            )
        ),
        "methods": sorted(
            PaymentMethod.objects.filter(organization_id=house.id).values_list(
                "stripe_id", "brand", "last4"
            )
        ),
        "accounts": sorted(
            Account.objects.filter(organization_id=house.id, owner_id="").values_list(
                "kind", "balance_nanos"
            )
        ),
        "credit": -sum(
            Account.objects.filter(organization_id=house.id, kind="customer_balance").values_list(
                "balance_nanos", flat=True
            )
        ),
        "balance": balances_nanos([house.id]),
    }
    return json.dumps(rows, default=str)
