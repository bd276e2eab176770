"""A customer's bank asks a payment back."""

import pytest
from django.utils import timezone

from billing.credit.selectors import owed_nanos
from billing.credit.services.adjustments import refund as refund_credit
from billing.ledger.models import Account
from billing.payments.models import Dispute, StripePayment
from billing.payments.selectors import disputed_organizations
from billing.payments.services import asking as asking_module
from billing.payments.services import refund_payment
from control.errors import Conflict
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.paying import ask_top_up, balance_cents, deliver, save_card, settle
from tests.simulation.stripe_double import StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture
def paid(org: SeededOrganization, stripe: StripeDouble) -> StripePayment:
    save_card(org, stripe)
    payment = ask_top_up(org, 10_000)
    settle(stripe)
    payment.refresh_from_db()
    return payment


def test_a_dispute_takes_the_credit_and_a_won_one_gives_it_back(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    dispute = stripe.open_dispute(str(paid.intent_id))
    deliver(stripe)
    assert balance_cents(org) == 0
    assert disputed_organizations([org.id], "test") == {org.id}
    stripe.close_dispute(dispute["id"], is_won=True)
    deliver(stripe)
    deliver(stripe)
    row = Dispute.objects.get()
    assert (row.status, row.is_open, balance_cents(org)) == ("won", False, 10_000)
    assert disputed_organizations([org.id], "test") == set()


def test_a_lost_dispute_stays_taken(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    dispute = stripe.open_dispute(str(paid.intent_id))
    stripe.close_dispute(dispute["id"], is_won=False)
    deliver(stripe)
    assert (Dispute.objects.get().status, balance_cents(org)) == ("lost", 0)


def test_a_question_of_the_bank_moves_no_money(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    stripe.open_dispute(str(paid.intent_id), asks=True)
    deliver(stripe)
    assert (balance_cents(org), Dispute.objects.get().is_open) == (10_000, True)


def test_a_dispute_of_tax_alone_is_booked_and_given_back(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of all is tax: the second cent is tax alone."""
    monkeypatch.setattr(asking_module, "tax_on_top_up", lambda *_, **__: 10_000)
    save_card(org, stripe)
    payment = ask_top_up(org, 10_000)
    settle(stripe)
    payment.refresh_from_db()
    disputes = [stripe.open_dispute(str(payment.intent_id), 1)["id"] for _ in range(2)]
    deliver(stripe)
    taken = Dispute.objects.order_by("taken_tax_cents", "taken_cents")
    assert {(each.taken_cents, each.taken_tax_cents) for each in taken} == {(0, 1), (1, 0)}
    cash = Account.objects.get(organization_id=org.id, kind="cash")
    assert cash.balance_nanos == 19_998 * 10**7
    for dispute in disputes:
        stripe.close_dispute(dispute, is_won=True)
    deliver(stripe)
    cash.refresh_from_db()
    assert (cash.balance_nanos, balance_cents(org)) == (20_000 * 10**7, 10_000)


def test_credit_that_is_spent_is_owed(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    refund_credit(
        organization_id=org.id, amount_nanos=70 * 10**9, idempotency_key="gone",
        actor=OPERATOR, reason="Gone", now=timezone.now(),
    )  # fmt: skip
    dispute = stripe.open_dispute(str(paid.intent_id))
    deliver(stripe)
    assert (balance_cents(org), owed_nanos(org.id)) == (-7_000, 70 * 10**9)
    stripe.close_dispute(dispute["id"], is_won=True)
    deliver(stripe)
    assert (balance_cents(org), owed_nanos(org.id)) == (3_000, 0)


def test_news_of_the_dispute_may_come_before_those_of_the_payment(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe, "pm_card_createDispute")
    payment = ask_top_up(org, 10_000)
    settle(stripe)
    payment.refresh_from_db()
    assert (payment.status, balance_cents(org)) == ("succeeded", 0)
    assert Dispute.objects.get().taken_cents == 10_000


def test_a_disputed_payment_is_not_refunded_by_us(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    stripe.open_dispute(str(paid.intent_id))
    deliver(stripe)
    with pytest.raises(Conflict, match="disputed"):
        refund_payment(
            payment_id=paid.id, amount_cents=100, idempotency_key="r", actor=OPERATOR,
            reason="", now=timezone.now(),
        )  # fmt: skip
