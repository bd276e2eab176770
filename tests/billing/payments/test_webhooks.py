"""What Stripe sends: proved, stored, answered, and done once in any order."""

import dataclasses
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from billing.payments.inbox import forget_events, process_inbox
from billing.payments.models import Gap, StripeEvent, StripePayment
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.paying import (
    WEBHOOK,
    ask_checkout,
    balance_cents,
    deliver,
    send,
)
from tests.simulation.stripe_double import StripeDouble
from tests.simulation.stripe_double.webhooks import signed

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture
def paid_event(org: SeededOrganization, stripe: StripeDouble) -> dict[str, Any]:
    payment = ask_checkout(org)
    stripe.pay(payment.checkout_id or "")
    return next(each for each in stripe.events if each["type"] == "payment_intent.succeeded")


def post(body: bytes, **headers: str) -> int:
    client = Client()
    reply = client.post(WEBHOOK, body, content_type="application/json", headers=headers)
    return reply.status_code


def test_a_signed_event_is_stored_as_it_came(paid_event: dict[str, Any]) -> None:
    body, signature = signed(paid_event, "whsec_double")
    assert post(body, **{"stripe-signature": signature}) == 200
    row = StripeEvent.objects.get()
    assert bytes(row.body) == body
    assert (row.object_kind, row.processed_at) == ("intent", None)


@pytest.mark.parametrize(
    ("secret", "age_seconds"), [("whsec_other", 0), ("", 0), ("whsec_double", 301)]
)
def test_a_wrong_foreign_or_old_signature_changes_nothing(
    org: SeededOrganization, paid_event: dict[str, Any], secret: str, age_seconds: int
) -> None:
    assert send(paid_event, secret=secret, at=time.time() - age_seconds) == 400
    assert not StripeEvent.objects.exists()


def test_an_unsigned_or_changed_body_changes_nothing(paid_event: dict[str, Any]) -> None:
    body, signature = signed(paid_event, "whsec_double")
    assert post(body) == 400
    assert post(body, **{"stripe-signature": "t=1,v1=00"}) == 400
    assert post(body, **{"stripe-signature": "nonsense"}) == 400
    assert post(body + b" ", **{"stripe-signature": signature}) == 400
    assert post(b"\xff" + body, **{"stripe-signature": signature}) == 400
    secret = {"x-djstripe-webhook-secret": "whsec_mine"}
    own, own_signature = signed(paid_event, "whsec_mine")
    assert post(own, **{"stripe-signature": own_signature}, **secret) == 400
    assert not StripeEvent.objects.exists()


@pytest.mark.parametrize("value", ["[]", "1", "{}", '{"id": 1}', "null", '{"id": "e"}'])
def test_what_is_no_event_is_refused(stripe: StripeDouble, db: None, value: str) -> None:
    body, signature = signed(json.loads(value), "whsec_double")
    assert post(body, **{"stripe-signature": signature}) == 400


def test_an_event_of_live_mode_is_refused(paid_event: dict[str, Any]) -> None:
    assert send(paid_event | {"livemode": True}) == 400
    assert not StripeEvent.objects.exists()


def test_a_body_too_large_is_refused(stripe: StripeDouble, db: None) -> None:
    assert post(b" " * (512 * 1024 + 1)) == 413


def test_without_keys_there_is_no_endpoint(
    org: SeededOrganization, stripe: StripeDouble, paid_event: dict[str, Any], settings
) -> None:
    settings.CONFIG = dataclasses.replace(settings.CONFIG, stripe=None)
    assert send(paid_event) == 503
    assert send(paid_event, secret="") == 503
    assert Client().get(WEBHOOK).status_code == 405


def test_the_old_secret_holds_while_it_is_replaced(
    stripe: StripeDouble, paid_event: dict[str, Any], settings
) -> None:
    keys = dataclasses.replace(stripe.keys, webhook_secrets=("whsec_new", "whsec_double"))
    settings.CONFIG = dataclasses.replace(settings.CONFIG, stripe=keys)
    assert send(paid_event) == 200
    assert send(paid_event, secret="whsec_new") == 200
    assert send(paid_event, secret="whsec_older") == 400


def test_a_repeat_is_answered_and_changes_nothing(
    org: SeededOrganization, stripe: StripeDouble, paid_event: dict[str, Any]
) -> None:
    for _ in range(5):
        assert send(paid_event) == 200
        process_inbox(now=timezone.now())
    assert StripeEvent.objects.count() == 1
    assert balance_cents(org) == 5_000


def test_other_types_are_kept_and_ignored(stripe: StripeDouble, db: None) -> None:
    event = stripe.tell("payout.paid", {"id": "po_1", "object": "payout"})
    assert send(event) == 200
    row = StripeEvent.objects.get()
    assert row.is_ignored
    assert row.processed_at is not None
    assert process_inbox(now=timezone.now()) == 0


def test_what_an_event_claims_is_not_believed(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    payment = ask_checkout(org)
    claim = {
        "id": "pi_made_up", "object": "payment_intent", "status": "succeeded", "currency": "usd",
        "amount_received": 5_000, "metadata": {"penstock_payment": payment.id}, "livemode": False,
    }  # fmt: skip
    deliver(stripe, [stripe.tell("payment_intent.succeeded", claim)])
    assert balance_cents(org) == 0
    assert StripeEvent.objects.get().problem == "Stripe has no such object"


@pytest.mark.parametrize(
    "changes", [{"amount": 100}, {"currency": "eur"}, {"metadata": {"penstock_payment": "pmt_x"}}]
)
def test_a_payment_unlike_what_we_asked_is_for_people(
    org: SeededOrganization, stripe: StripeDouble, changes: dict[str, Any]
) -> None:
    payment = ask_checkout(org)
    named = {"metadata": {"penstock_payment": payment.id}}
    stripe.pay_unasked(payment.customer_stripe_id, 5_000, **named | changes)
    deliver(stripe)
    payment.refresh_from_db()
    assert (payment.status, balance_cents(org)) == ("open", 0)
    assert Gap.objects.count() == 1


def test_strangers_payments_at_the_same_account_are_no_concern(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    stranger = stripe.make("customer")
    stripe.pay_unasked(stranger["id"], 5_000)
    deliver(stripe)
    assert not Gap.objects.exists()


def test_a_payment_that_another_organization_names_is_not_theirs(
    org: SeededOrganization, outsider: SeededOrganization, stripe: StripeDouble
) -> None:
    mine = ask_checkout(org)
    theirs = ask_checkout(outsider)
    metadata = {"penstock_payment": mine.id}
    stripe.pay_unasked(theirs.customer_stripe_id, 5_000, metadata=metadata)
    deliver(stripe)
    assert (balance_cents(org), balance_cents(outsider)) == (0, 0)


def test_what_stripe_does_not_answer_is_looked_at_again(
    org: SeededOrganization, stripe: StripeDouble, paid_event: dict[str, Any]
) -> None:
    from tests.simulation.stripe_double import Fault

    send(paid_event)
    stripe.faults.append(Fault("lost_before", "payment_intents/.*", "GET", times=3))
    now = timezone.now()
    assert process_inbox(now=now) == 0
    assert process_inbox(now=now) == 0
    assert process_inbox(now=now + timedelta(seconds=11)) == 1
    assert balance_cents(org) == 5_000


@pytest.mark.parametrize("page", [1, 200])
def test_one_look_serves_all_events_of_an_object(
    org: SeededOrganization, stripe: StripeDouble, page: int
) -> None:
    payment = ask_checkout(org)
    stripe.pay(payment.checkout_id or "")
    for event in stripe.events:
        send(event)
    before = len(stripe.requests)
    while process_inbox(now=timezone.now(), page=page):
        pass
    intents = [path for _, path, _ in stripe.requests[before:] if path.startswith("payment_int")]
    assert len(intents) == 1
    assert StripePayment.objects.get(id=payment.id).status == "succeeded"


def test_what_a_run_has_no_time_for_is_left_to_the_next(
    org: SeededOrganization,
    outsider: SeededOrganization,
    stripe: StripeDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("billing.payments.inbox.LOOK_SECONDS", 0)
    for each in (org, outsider):
        stripe.pay(ask_checkout(each).checkout_id or "")
    for event in stripe.events:
        if event["type"] == "payment_intent.succeeded":
            send(event)
    now = timezone.now()
    assert process_inbox(now=now) == 1
    left = StripeEvent.objects.get(processed_at__isnull=True)
    assert (left.due_at, left.attempt_count) == (now, 0)
    assert process_inbox(now=now) == 1
    assert (balance_cents(org), balance_cents(outsider)) == (5_000, 5_000)


def test_events_go_when_they_are_old(stripe: StripeDouble, paid_event: dict[str, Any]) -> None:
    send(paid_event)
    later = timezone.now() + timedelta(days=31)
    assert forget_events(now=later) == 0
    process_inbox(now=timezone.now())
    assert forget_events(now=later) == 1
