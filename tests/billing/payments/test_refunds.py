"""Money that goes back: refunds, and what becomes of those that fail."""

from datetime import timedelta

import pytest
from django.utils import timezone

from billing.credit.selectors import recalled_lease_ids
from billing.credit.services.adjustments import refund as refund_credit
from billing.credit.services.adjustments import refund_or_recall
from billing.credit.services.leases import take_back
from billing.ledger.models import Account
from billing.payments.models import Refund, StripePayment
from billing.payments.services import asking as asking_module
from billing.payments.services import refund_payment
from billing.payments.services.refunding import refundable_cents
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.database_identity import database_id
from serving.contract.budget import balance_budget_id
from serving.contract.lease import LeaseGrant, LeaseReturn
from serving.contract.money import CENT_NANOS
from tests.fixtures.books import differences
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.paying import ask_top_up, balance_cents, deliver, save_card, settle
from tests.fixtures.usage import GATEWAY, ask_for
from tests.simulation.stripe_double import Fault, StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture
def paid(org: SeededOrganization, stripe: StripeDouble) -> StripePayment:
    save_card(org, stripe)
    payment = ask_top_up(org, 10_000)
    settle(stripe)
    payment.refresh_from_db()
    return payment


def pay_back(payment: StripePayment, cents: int, key: str = "r", **changes: object) -> Refund:
    values = {"actor": OPERATOR, "reason": "Asked for", "now": timezone.now()} | changes
    return refund_payment(payment_id=payment.id, amount_cents=cents, idempotency_key=key, **values)


def test_a_refund_goes_to_the_card(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    refund = pay_back(paid, 4_000)
    assert (balance_cents(org), stripe.all("refund")) == (6_000, [])
    settle(stripe)
    refund.refresh_from_db()
    assert (refund.status, balance_cents(org)) == ("succeeded", 6_000)
    (made,) = stripe.all("refund")
    assert (made["amount"], made["payment_intent"]) == (4_000, paid.intent_id)


def test_a_repeat_is_the_same_refund(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    assert pay_back(paid, 4_000) == pay_back(paid, 4_000)
    with pytest.raises(Conflict, match="another refund"):
        pay_back(paid, 4_001)
    settle(stripe)
    assert (len(stripe.all("refund")), balance_cents(org)) == (1, 6_000)


@pytest.mark.parametrize(
    ("cents", "error"), [(0, InvalidValue), (-1, InvalidValue), (10_001, Conflict)]
)
def test_never_more_than_was_paid(
    org: SeededOrganization, paid: StripePayment, cents: int, error: type[Exception]
) -> None:
    with pytest.raises(error) as refused:
        pay_back(paid, cents)
    assert refused.value.param == "amount_cents"
    assert balance_cents(org) == 10_000


def test_never_more_than_is_left_of_the_credit(
    org: SeededOrganization, paid: StripePayment
) -> None:
    refund_credit(
        organization_id=org.id, amount_nanos=80 * 10**9, idempotency_key="by hand",
        actor=OPERATOR, reason="By transfer", now=timezone.now(),
    )  # fmt: skip
    with pytest.raises(Conflict, match="can be refunded"):
        pay_back(paid, 5_000)
    assert not Refund.objects.exists()


def hold(org: SeededOrganization, cents: int) -> LeaseGrant:
    """A gateway's lease of an organization's credit."""
    granted = ask_for(balance_budget_id(org.id), cents * CENT_NANOS, now=timezone.now())
    assert isinstance(granted, LeaseGrant)
    return granted


def give_back(lease: LeaseGrant, kept_nanos: int = 0) -> None:
    returned = LeaseReturn(lease.lease_id, kept_nanos, closed=True)
    take_back(gateway_id=GATEWAY, returns=[returned], lineage=database_id(), now=timezone.now())


def test_a_refund_waits_for_credit_that_gateways_hold(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    lease = hold(org, 9_000)
    refund = pay_back(paid, 10_000)
    assert (refund.status, balance_cents(org)) == ("waiting", 10_000)
    assert recalled_lease_ids(GATEWAY, database_id()) == (lease.lease_id,)
    settle(stripe)
    assert stripe.all("refund") == []
    give_back(lease)
    settle(stripe, now=timezone.now() + timedelta(seconds=5))
    refund.refresh_from_db()
    assert (refund.status, balance_cents(org)) == ("succeeded", 0)
    assert [made["amount"] for made in stripe.all("refund")] == [10_000]
    assert differences() == []


def test_a_refund_whose_credit_is_spent_meanwhile_is_not_made(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    hold(org, 9_000)
    refund = pay_back(paid, 10_000)
    refund_credit(
        organization_id=org.id, amount_nanos=CENT_NANOS, idempotency_key="by hand",
        actor=OPERATOR, reason="By transfer", now=timezone.now(),
    )  # fmt: skip
    settle(stripe, now=timezone.now() + timedelta(seconds=5))
    refund.refresh_from_db()
    assert (refund.status, balance_cents(org)) == ("failed", 9_999)
    assert "$99.99 can be refunded" in refund.failure_words
    assert (stripe.all("refund"), refundable_cents(paid.id)) == ([], 10_000)
    assert differences() == []


def test_who_refunds_by_hand_is_told_to_ask_again(
    org: SeededOrganization, paid: StripePayment
) -> None:
    lease = hold(org, 9_000)
    values = {
        "organization_id": org.id, "amount_nanos": 100 * 10**9, "idempotency_key": "by hand",
        "actor": OPERATOR, "reason": "By transfer", "now": timezone.now(),
    }  # fmt: skip
    with pytest.raises(Conflict, match=r"Gateways hold \$90.00 .* Try again in a few seconds"):
        refund_or_recall(**values)
    assert recalled_lease_ids(GATEWAY, database_id()) == (lease.lease_id,)
    give_back(lease)
    refund_or_recall(**values)
    assert balance_cents(org) == 0


def test_only_operators_refund(org: SeededOrganization, paid: StripePayment) -> None:
    with pytest.raises(NotPermitted):
        pay_back(paid, 100, actor=org.actor)


def test_a_refund_that_comes_back_gives_the_credit_again(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    refund = pay_back(paid, 4_000)
    settle(stripe)
    stripe.bounce_refund(str(Refund.objects.get().stripe_id))
    deliver(stripe)
    refund.refresh_from_db()
    assert (refund.status, balance_cents(org)) == ("failed", 10_000)
    deliver(stripe)
    assert balance_cents(org) == 10_000


def test_a_refund_that_stripe_refuses_gives_the_credit_again(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    stripe.open_dispute(str(paid.intent_id), asks=True)
    refund = pay_back(paid, 4_000)
    settle(stripe)
    refund.refresh_from_db()
    assert (refund.status, balance_cents(org)) == ("failed", 10_000)


def test_a_refund_made_at_stripe_takes_its_credit(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    stripe.pay_back(str(paid.intent_id), 3_000)
    deliver(stripe)
    deliver(stripe)
    refund = Refund.objects.get()
    assert (refund.amount_cents, refund.requested_by) == (3_000, "Stripe")
    assert balance_cents(org) == 7_000
    with pytest.raises(Conflict):
        pay_back(paid, 7_001)


@pytest.mark.parametrize("is_told_first", [True, False])
def test_a_refund_made_at_stripe_before_ours_was_asked_for_is_known_all_the_same(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment, is_told_first: bool
) -> None:
    refund = pay_back(paid, 8_000)
    stripe.pay_back(str(paid.intent_id), 3_000)
    if is_told_first:
        deliver(stripe)  # there is no room for it yet
        assert Refund.objects.count() == 1
    settle(stripe)
    refund.refresh_from_db()
    assert (refund.status, balance_cents(org)) == ("failed", 7_000)
    assert Refund.objects.exclude(pk=refund.pk).get().requested_by == "Stripe"
    settle(stripe, now=timezone.now() + timedelta(hours=1))
    assert balance_cents(org) == 7_000


def test_tax_goes_back_with_its_credit_to_the_cent(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_module, "tax_on_top_up", lambda *_, **__: 1_900)
    save_card(org, stripe)
    payment = ask_top_up(org, 10_000)
    settle(stripe)
    payment.refresh_from_db()
    assert (stripe.succeeded()[0]["amount"], balance_cents(org)) == (11_900, 10_000)
    for n, (cents, tax) in enumerate([(3_333, 633), (3_333, 634), (3_334, 633)]):
        refund = pay_back(payment, cents, f"r{n}")
        assert refund.tax_cents == tax  # 633.27, 1266.54, 1900 half up, less what went before
    settle(stripe)
    assert sum(each["amount"] for each in stripe.all("refund")) == 11_900
    assert (balance_cents(org), differences()) == (0, [])


def test_what_stripe_pays_back_is_booked_to_the_cent_of_tax(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """11,896 take 1,899 of tax (1,899.36), and the cent after them the last (1,899.52 half up): it
    leaves the cash, and takes no credit."""
    monkeypatch.setattr(asking_module, "tax_on_top_up", lambda *_, **__: 1_900)
    save_card(org, stripe)
    payment = ask_top_up(org, 10_000)
    settle(stripe)
    payment.refresh_from_db()
    for cents in (1, 1, 1, 1, 11_896):
        stripe.pay_back(str(payment.intent_id), cents)
    deliver(stripe, stripe.events[-1:])
    rows = Refund.objects.order_by("stripe_id").values_list("amount_cents", "tax_cents")
    assert sorted(rows) == [(0, 1), (1, 0), (1, 0), (1, 0), (9_997, 1_899)]
    assert (balance_cents(org), cents_of(org, "cash")) == (0, 0)
    assert cents_of(org, "tax_payable") == 0
    last = Refund.objects.get(tax_cents=1)
    stripe.bounce_refund(str(last.stripe_id))
    deliver(stripe, stripe.events[-1:] * 2)
    assert (balance_cents(org), cents_of(org, "cash")) == (0, 1)


def cents_of(org: SeededOrganization, kind: str) -> int:
    return Account.objects.get(organization_id=org.id, kind=kind).balance_nanos // 10**7


@pytest.mark.parametrize("kind", ["lost_before", "lost_after", "rate_limit"])
def test_an_answer_that_is_lost_pays_back_once(
    org: SeededOrganization, stripe: StripeDouble, paid: StripePayment, kind: str
) -> None:
    pay_back(paid, 4_000)
    stripe.faults.append(Fault(kind, "refunds", times=4))  # type: ignore[arg-type]
    for hours in range(6):
        settle(stripe, now=timezone.now() + timedelta(hours=hours))
    assert [each["amount"] for each in stripe.all("refund")] == [4_000]
    assert Refund.objects.get().status == "succeeded"


def test_parts_paid_back_at_stripe_take_all_credit_and_all_tax_between_them(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_module, "tax_on_top_up", lambda *_, **__: 95)
    save_card(org, stripe)
    payment = ask_top_up(org, 500)
    settle(stripe)
    payment.refresh_from_db()
    for cents in (199, 198, 198):
        stripe.pay_back(str(payment.intent_id), cents)
        deliver(stripe)
    parts = Refund.objects.order_by("created_at").values_list("amount_cents", "tax_cents")
    assert list(parts) == [(167, 32), (167, 31), (166, 32)]  # 167.2, 333.6, 500 half up
    assert balance_cents(org) == 0
