"""Every night Stripe's movements against our books: no gap, or each by name."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from billing.payments import syncing
from billing.payments.models import Dispute, Gap, Reconciliation, StripePayment
from billing.payments.nights import reconcile
from billing.payments.selectors import disputed_organizations, open_payments_count
from billing.payments.services import refund_payment
from billing.payments.services.unmatched import credit_gap, dismiss_gap
from control.errors import Conflict, NotPermitted
from control.outbox.services import deliver_due
from control.permissions import Actor
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.paying import (
    ask_checkout,
    ask_top_up,
    balance_cents,
    deliver,
    save_card,
    settle,
)
from tests.simulation.stripe_double import StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def credit(org: SeededOrganization, gap: Gap, actor: Actor = OPERATOR) -> Gap:
    return credit_gap(
        gap_id=gap.pk, organization_id=org.id, actor=actor, reason="Their invoice 7",
        now=timezone.now(),
    )  # fmt: skip


def look(now: datetime | None = None) -> Reconciliation:
    now = now or timezone.now() + timedelta(seconds=2)
    return reconcile(
        starts_at=now - timedelta(days=3), ends_at=now, now=now, step=timedelta(days=1)
    )


def test_sound_books_have_no_gap(org: SeededOrganization, stripe: StripeDouble) -> None:
    save_card(org, stripe)
    payment = ask_top_up(org)
    stripe.pay(ask_checkout(org).checkout_id or "")
    settle(stripe)
    refund_payment(
        payment_id=payment.id, amount_cents=500, idempotency_key="r", actor=OPERATOR, reason="",
        now=timezone.now(),
    )  # fmt: skip
    settle(stripe)
    dispute = stripe.open_dispute(stripe.succeeded()[0]["id"])
    stripe.close_dispute(dispute["id"], is_won=True)
    deliver(stripe)
    found = look()
    assert (found.movement_count, found.healed_count, found.gap_count) == (5, 0, 0)
    assert look(timezone.now() + timedelta(days=1)).gap_count == 0


def test_lost_webhooks_are_made_good(org: SeededOrganization, stripe: StripeDouble) -> None:
    stripe.pay(ask_checkout(org).checkout_id or "")
    save_card(org, stripe)
    ask_top_up(org)
    deliver_due(now=timezone.now())
    stripe.pay_back(stripe.succeeded()[0]["id"], 100)
    found = look()
    assert (found.healed_count, found.gap_count) == (2, 0)
    assert balance_cents(org) == 9_900


def test_a_bank_that_only_asks_is_heard_though_nothing_moves(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    stripe.pay(ask_checkout(org).checkout_id or "")
    settle(stripe)
    stripe.open_dispute(stripe.succeeded()[0]["id"], asks=True)  # and no webhook comes
    assert look().gap_count == 0
    assert Dispute.objects.get().status == "warning_needs_response"


def test_a_card_declined_on_a_page_ends_nothing_though_the_page_is_not_known_yet(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    payment = ask_checkout(org)
    session_id = payment.checkout_id or ""
    stripe.pay(session_id, "pm_card_chargeDeclined")
    # Stripe's answer with the page's id was lost.
    StripePayment.objects.update(checkout_id=None, action_url="", status="created")
    syncing.sync_intent(
        stripe.get("checkout.session", session_id)["payment_intent"], now=timezone.now()
    )
    payment.refresh_from_db()
    assert payment.status == "created"
    stripe.pay(session_id)
    settle(stripe)
    payment.refresh_from_db()
    assert (payment.status, balance_cents(org)) == ("succeeded", 5_000)


def test_a_payment_that_nobody_asked_for_is_credited_by_an_operator(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    payment = ask_checkout(org)
    made = stripe.pay_unasked(payment.customer_stripe_id, 3_000)
    assert look().gap_count == 1
    gap = Gap.objects.get()
    assert (gap.kind, gap.reference, gap.amount_cents) == ("unknown_payment", made["id"], 3_000)
    with pytest.raises(NotPermitted):
        credit(org, gap, org.actor)
    assert credit(org, gap).closed_because == "Credited: Their invoice 7"
    assert balance_cents(org) == 3_000
    with pytest.raises(Conflict):
        credit(org, gap)
    assert look().gap_count == 0


def test_what_people_dismissed_stays_so(org: SeededOrganization, stripe: StripeDouble) -> None:
    payment = ask_checkout(org)
    stripe.pay_unasked(payment.customer_stripe_id, 3_000)
    look()
    dismiss_gap(gap_id=Gap.objects.get().pk, reason="A test", actor=OPERATOR, now=timezone.now())
    assert look().gap_count == 0


def test_a_payment_that_stripe_lacks_is_named(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe)
    payment = ask_top_up(org)
    settle(stripe)
    intent = stripe.things.pop(str(StripePayment.objects.get(id=payment.id).intent_id))
    for each in stripe.all("balance_transaction"):
        del stripe.things[each["id"]]
    assert look(timezone.now() + timedelta(hours=3)).gap_count == 1
    gap = Gap.objects.get()
    assert (gap.kind, gap.reference) == ("missing_payment", payment.id)
    assert intent["status"] == "succeeded"


def test_another_amount_is_named_and_closes_once_it_fits(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe)
    ask_top_up(org)
    settle(stripe)
    moved = stripe.all("balance_transaction")[0]
    moved["amount"] = 4_900
    assert look().gap_count == 1
    assert Gap.objects.get().kind == "unlike_payment"
    moved["amount"] = 5_000
    assert look().gap_count == 0
    assert Gap.objects.get().closed_because == "It fits by now"


def test_many_pages_of_movements(org: SeededOrganization, stripe: StripeDouble) -> None:
    customer = stripe.make("customer")
    for _ in range(120):
        stripe.pay_unasked(customer["id"], 1_000)
    assert (look().movement_count, Gap.objects.count()) == (120, 0)


def test_a_payment_that_is_booked_is_not_credited_again(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe)
    payment = ask_top_up(org)
    settle(stripe)
    stripe.all("balance_transaction")[0]["amount"] = 6_000
    look()
    gap = Gap.objects.get()
    with pytest.raises(Conflict, match=f"{payment.id} is already in the books"):
        credit(org, gap)
    gap.refresh_from_db()
    assert (balance_cents(org), gap.is_open) == (5_000, True)


def test_a_payment_that_stripe_lacked_for_a_night_fits_the_next(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe)
    payment = ask_top_up(org)
    settle(stripe)
    intent_id = str(StripePayment.objects.get(id=payment.id).intent_id)
    intent = stripe.things.pop(intent_id)
    for each in stripe.all("balance_transaction"):
        del stripe.things[each["id"]]
    assert look(timezone.now() + timedelta(hours=3)).gap_count == 1
    stripe.things[intent_id] = intent
    assert look(timezone.now() + timedelta(hours=4)).gap_count == 0
    assert Gap.objects.get().closed_because == "It fits by now"


@pytest.mark.parametrize("kind", ["unknown_refund", "dispute"])
def test_what_goes_back_of_a_credited_payment_is_named(
    org: SeededOrganization, stripe: StripeDouble, kind: str
) -> None:
    made = stripe.pay_unasked(ask_checkout(org).customer_stripe_id, 3_000)
    look()
    gap = Gap.objects.get()
    credit(org, gap)
    if kind == "dispute":
        stripe.open_dispute(made["id"])
    else:
        stripe.pay_back(made["id"], 1_000)
    assert look().gap_count == 1
    gone = Gap.objects.get(kind=kind)
    assert (gone.organization_id, balance_cents(org)) == (org.id, 3_000)


def test_what_goes_back_of_a_dismissed_payment_is_no_concern(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    made = stripe.pay_unasked(ask_checkout(org).customer_stripe_id, 3_000)
    look()
    dismiss_gap(gap_id=Gap.objects.get().pk, reason="A test", actor=OPERATOR, now=timezone.now())
    stripe.pay_back(made["id"], 3_000)
    assert look().gap_count == 0


def test_a_refund_that_came_back_unheard_is_made_good(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    """Paid back as our books say, then sent back by the bank, and that webhook is lost."""
    save_card(org, stripe)
    payment = ask_top_up(org)
    settle(stripe)
    refund_payment(
        payment_id=payment.id, amount_cents=500, idempotency_key="r", actor=OPERATOR, reason="",
        now=timezone.now(),
    )  # fmt: skip
    settle(stripe)
    assert balance_cents(org) == 4_500
    stripe.bounce_refund(stripe.all("refund")[0]["id"])
    found = look()
    assert (found.healed_count, found.gap_count, balance_cents(org)) == (1, 0, 5_000)


def test_a_refund_of_stripes_that_came_back_before_it_was_heard_of_is_no_gap(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe)
    ask_top_up(org)
    settle(stripe)
    stripe.bounce_refund(stripe.pay_back(stripe.succeeded()[0]["id"], 100)["id"])
    assert (look().gap_count, balance_cents(org)) == (0, 5_000)


def test_a_dispute_lost_unheard_long_after_its_money_moved_is_decided(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe)
    ask_top_up(org)
    settle(stripe)
    dispute = stripe.open_dispute(stripe.succeeded()[0]["id"])
    deliver(stripe)
    stripe.close_dispute(dispute["id"], is_won=False)
    assert disputed_organizations([org.id], "test") == {org.id}
    assert look(timezone.now() + timedelta(days=60)).gap_count == 0
    assert disputed_organizations([org.id], "test") == set()


@pytest.mark.parametrize("is_credited", [True, False])
def test_nobody_waits_for_a_payment_that_was_paid_otherwise_once_its_gap_is_closed(
    org: SeededOrganization, stripe: StripeDouble, is_credited: bool
) -> None:
    """The page says two dollars less than it was opened for."""
    payment = ask_checkout(org)
    stripe.get("checkout.session", payment.checkout_id)["amount_total"] = 4_800
    stripe.pay(payment.checkout_id or "")
    deliver(stripe)
    gap = Gap.objects.get()
    assert (gap.kind, open_payments_count("test")) == ("unlike_payment", 1)
    if is_credited:
        credit(org, gap)
    else:
        dismiss_gap(gap_id=gap.pk, reason="Paid back", actor=OPERATOR, now=timezone.now())
    payment.refresh_from_db()
    assert (payment.status, open_payments_count("test")) == ("canceled", 0)
    assert balance_cents(org) == (4_800 if is_credited else 0)
    deliver(stripe)
    assert look().gap_count == 0
    assert StripePayment.objects.get().status == "canceled"


def test_disputes_of_another_mode_are_told_apart(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe)
    ask_top_up(org)
    settle(stripe)
    stripe.open_dispute(stripe.succeeded()[0]["id"])
    deliver(stripe)
    assert disputed_organizations([org.id], "test") == {org.id}
    assert disputed_organizations([org.id], "live") == set()
