"""The regular look at what no news came of: each in its turn, and none in the way of another."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from billing.payments.errors import StripeAway, StripeRefused
from billing.payments.models import Refund, StripePayment
from billing.payments.selectors import open_payments
from billing.payments.services import refund_payment
from billing.payments.stripe_api import StripeApi
from billing.payments.syncing import AWAY_MAX, sync_open
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.paying import ask_checkout, ask_top_up, balance_cents, save_card, settle
from tests.simulation.stripe_double import StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]

LATER = timedelta(minutes=10)


def test_one_payment_that_cannot_be_looked_at_holds_up_no_other(
    org: SeededOrganization,
    outsider: SeededOrganization,
    stripe: StripeDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken, sound = ask_checkout(org), ask_checkout(outsider)
    stripe.pay(sound.checkout_id or "")
    session = StripeApi.session

    def refused_for_one(api: StripeApi, session_id: str) -> object:
        if session_id == broken.checkout_id:
            raise StripeRefused("No.")
        return session(api, session_id)

    monkeypatch.setattr(StripeApi, "session", refused_for_one)
    assert sync_open(now=timezone.now() + LATER) == 2
    assert balance_cents(outsider) == 5_000


def test_one_refund_that_stripe_lost_holds_up_no_other(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe)
    payment = ask_top_up(org, 10_000)
    settle(stripe)
    lost, asked = (
        refund_payment(
            payment_id=payment.id, amount_cents=1_000, idempotency_key=key, actor=OPERATOR,
            reason="Asked for", now=timezone.now(),
        )
        for key in ("lost", "asked")
    )  # fmt: skip
    now = timezone.now()
    Refund.objects.filter(id=lost.id).update(status="pending", stripe_id="re_gone", asked_at=now)
    sync_open(now=now + LATER)
    asked.refresh_from_db()
    assert asked.status == "succeeded"
    assert Refund.objects.get(id=lost.id).looked_at == now + LATER


def test_what_nobody_looked_at_comes_first(org: SeededOrganization, stripe: StripeDouble) -> None:
    looked_at, fresh = ask_checkout(org), ask_checkout(org)
    StripePayment.objects.filter(id=fresh.id).update(looked_at=None)
    (first,) = open_payments("test", timezone.now() + LATER, 1)
    assert first == fresh
    assert looked_at.looked_at is not None


def refunds(org: SeededOrganization, stripe: StripeDouble, count: int) -> list[Refund]:
    save_card(org, stripe)
    payment = ask_top_up(org, 10_000)
    settle(stripe)
    return [
        refund_payment(
            payment_id=payment.id, amount_cents=1_000, idempotency_key=str(key), actor=OPERATOR,
            reason="Asked for", now=timezone.now(),
        )
        for key in range(count)
    ]  # fmt: skip


def away_for(monkeypatch: pytest.MonkeyPatch, ids: set[str]) -> list[str]:
    """Have Stripe answer 500 to some refunds' question; return whose it was asked."""
    asked, create = [], StripeApi.create_refund

    def answered(api: StripeApi, wanted: Any, *, key: str) -> object:
        asked.append(key.removeprefix("refund:"))
        if asked[-1] in ids:
            raise StripeAway("500")
        return create(api, wanted, key=key)

    monkeypatch.setattr(StripeApi, "create_refund", answered)
    return asked


def test_a_refund_that_stripe_itself_fails_at_holds_up_no_other(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = refunds(org, stripe, 3)
    asked = away_for(monkeypatch, {made[0].id})
    for minutes in (10, 20, 30):
        sync_open(now=timezone.now() + timedelta(minutes=minutes))
    states = {each.id: each.status for each in Refund.objects.all()}
    assert [states[each.id] for each in made] == ["created", "succeeded", "succeeded"]
    assert asked.count(made[0].id) == 3


def test_where_stripe_is_away_nobody_asks_on(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = refunds(org, stripe, 6)
    asked = away_for(monkeypatch, {each.id for each in made})
    with pytest.raises(StripeAway):
        sync_open(now=timezone.now() + LATER)
    assert len(asked) == AWAY_MAX
