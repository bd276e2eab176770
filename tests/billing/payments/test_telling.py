"""What people are told of payments by mail and webhook, once each."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.db import transaction
from django.utils import timezone

from billing.credit.services.reversals import take_back
from billing.ledger.causes import Cause
from billing.payments.models import StripePayment
from billing.payments.services.automatic import run_auto_top_ups, set_auto_top_up
from billing.payments.syncing import sync_intent
from control.outbox.models import OutboxMessage
from control.outbox.services import deliver_due
from control.webhooks.models import WebhookEvent
from control.webhooks.services import create_endpoint
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.paying import ask_top_up, deliver, save_card, settle
from tests.simulation.stripe_double import StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
RECEIVED = "Payment received from Acme: $50.00"


@pytest.fixture
def reader(org: SeededOrganization) -> str:
    address = org.owner.email
    EmailAddress.objects.create(user=org.owner, email=address, verified=True, primary=True)
    return address


def subjects(after: timedelta = timedelta(0)) -> list[str]:
    deliver_due(now=timezone.now() + after)
    return [each.subject for each in mail.outbox]


def test_a_declined_automatic_top_up_is_told_and_then_its_end(
    org: SeededOrganization, stripe: StripeDouble, reader: str
) -> None:
    save_card(org, stripe, "pm_card_chargeCustomerFail")
    set_auto_top_up(
        organization=org.organization, is_on=True, threshold_cents=100_000, amount_cents=5_000,
        monthly_cap_cents=50_000, actor=org.actor, now=timezone.now(),
    )  # fmt: skip
    for hours in (0, 2, 4):  # after a decline the card is left alone for an hour
        now = timezone.now() + timedelta(hours=hours)
        run_auto_top_ups(now=now)
        settle(stripe, now=now)
    assert sorted(subjects()) == [
        "Auto-recharge for Acme has stopped",
        "Auto-recharge for Acme was declined",
        "Auto-recharge for Acme was declined",
    ]
    assert mail.outbox[0].to == [reader]
    assert f"/{org.id}/billing" in str(mail.outbox[0].body)


def test_a_dispute_is_told_when_credit_goes_and_when_it_comes_back(
    org: SeededOrganization, stripe: StripeDouble, reader: str
) -> None:
    save_card(org, stripe)
    ask_top_up(org)
    settle(stripe)
    dispute = stripe.open_dispute(stripe.succeeded()[0]["id"])
    deliver(stripe)
    deliver(stripe)
    assert subjects() == [RECEIVED, "A payment by Acme is disputed"]
    stripe.close_dispute(dispute["id"], is_won=True)
    deliver(stripe)
    assert subjects()[2:] == ["Dispute resolved: the credit of Acme is restored"]


def test_who_topped_up_themselves_is_not_mailed(
    org: SeededOrganization, stripe: StripeDouble, reader: str
) -> None:
    save_card(org, stripe, "pm_card_chargeCustomerFail")
    ask_top_up(org)
    settle(stripe)
    assert subjects() == []


def test_a_charge_is_told_once_whatever_is_repeated(
    org: SeededOrganization,
    outsider: SeededOrganization,
    stripe: StripeDouble,
    reader: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """$50.00 of credit and 19 % of tax, by a saved card."""
    subscribe(org, "payment.succeeded")
    subscribe(outsider, "payment.succeeded")
    monkeypatch.setattr("billing.payments.services.asking.tax_on_top_up", lambda *_, **__: 950)
    save_card(org, stripe)
    payment = ask_top_up(org, 5_000)
    for _ in range(2):
        settle(stripe)
        sync_intent(stripe.succeeded()[0]["id"], now=timezone.now())
    assert subjects() == ["Payment received from Acme: $59.50"]
    assert mail.outbox[0].to == [reader]
    body = str(mail.outbox[0].body)
    assert re.findall(r"^(.*?) {2,}(\$.*)$", body, re.MULTILINE) == [
        ("Credit purchase", "$50.00"), ("Tax", "$9.50"), ("Total", "$59.50"),
    ]  # fmt: skip
    assert "with Visa …4242" in body
    assert f"/{org.id}/billing" in body
    payment.refresh_from_db()
    assert events(org) == [
        {
            "payment_id": payment.id, "purpose": "top_up", "invoice_id": None,
            "amount_cents": 5_000, "tax_cents": 950, "total_cents": 5_950, "currency": "usd",
            "payment_method_id": payment.method_id, "last4": "4242",
            "receipt_url": payment.receipt_url,
        }
    ]  # fmt: skip
    assert events(outsider) == []


def test_an_auto_recharge_is_told(
    org: SeededOrganization, stripe: StripeDouble, reader: str
) -> None:
    """A saved card is not charged in silence."""
    save_card(org, stripe)
    set_auto_top_up(
        organization=org.organization, is_on=True, threshold_cents=1_000, amount_cents=5_000,
        monthly_cap_cents=50_000, actor=org.actor, now=timezone.now(),
    )  # fmt: skip
    run_auto_top_ups(now=timezone.now())
    settle(stripe)
    assert subjects() == [RECEIVED]
    assert "Auto-recharge" in str(mail.outbox[0].body)


def test_a_payment_that_is_not_booked_is_not_told(
    org: SeededOrganization, stripe: StripeDouble, reader: str
) -> None:
    """What is told is in the transaction that books."""
    subscribe(org, "payment.succeeded")
    save_card(org, stripe)
    ask_top_up(org)
    with pytest.raises(RuntimeError), transaction.atomic():
        settle(stripe)
        raise RuntimeError("the transaction is undone")
    assert events(org) == []
    assert not OutboxMessage.objects.filter(kind__in=("mail", "webhook")).exists()


def subscribe(org: SeededOrganization, event_type: str) -> None:
    create_endpoint(
        actor=org.actor, organization=org.organization, url="https://example.com/hook",
        event_types=[event_type],
    )  # fmt: skip


def events(org: SeededOrganization) -> list[dict[str, Any]]:
    found = WebhookEvent.objects.filter(organization=org.organization)
    return [json.loads(event.body)["data"] for event in found]


def bank_top_up(org: SeededOrganization, stripe: StripeDouble) -> StripePayment:
    method = save_card(org, stripe, "pm_usBankAccount_success")
    payment = ask_top_up(org, method=method)
    settle(stripe)
    return payment


def bounce(payment: StripePayment, stripe: StripeDouble, *, after: timedelta) -> None:
    payment.refresh_from_db()
    stripe.settle_debit(payment.intent_id or "", is_paid=False)
    sync_intent(payment.intent_id or "", now=timezone.now() + after)


def test_a_debit_that_comes_back_days_later_is_told_with_what_is_owed(
    org: SeededOrganization, stripe: StripeDouble, reader: str
) -> None:
    first = bank_top_up(org, stripe)
    bounce(first, stripe, after=timedelta(days=3))
    take_back(
        organization_id=org.id, amount_nanos=1_234 * 10_000_000, tax_nanos=0,
        cause=Cause.REFUND, key="gone", actor=OPERATOR, now=timezone.now(),
    )  # fmt: skip
    bounce(bank_top_up(org, stripe), stripe, after=timedelta(days=3))
    assert subjects(timedelta(days=4)) == ["A payment by Acme did not go through"] * 2
    bodies = [str(each.body) for each in mail.outbox]
    assert ["now owes" in body for body in bodies] == [False, True]
    assert "Acme now owes $12.34." in bodies[1]
    assert mail.outbox[0].to == [reader]


def test_a_decline_that_is_looked_at_is_no_mail(
    org: SeededOrganization, stripe: StripeDouble, reader: str
) -> None:
    bounce(bank_top_up(org, stripe), stripe, after=timedelta(minutes=1))
    assert subjects(timedelta(days=4)) == []


def test_what_goes_back_at_stripe_alone_is_told_once(
    org: SeededOrganization, stripe: StripeDouble, reader: str
) -> None:
    save_card(org, stripe)
    payment = ask_top_up(org)
    settle(stripe)
    stripe.pay_back(stripe.succeeded()[0]["id"], 2_000)
    for _ in range(2):
        deliver(stripe)
    assert subjects() == [RECEIVED, "A payment by Acme was refunded"]
    assert "$20.00 of your payment" in str(mail.outbox[1].body)
    assert payment.id in str(mail.outbox[1].body)
