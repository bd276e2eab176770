"""A top-up, from the wish to the credit: with a saved method, on Stripe's page, declined."""

import pytest
from django.db import ProgrammingError, transaction
from django.utils import timezone

from billing.ledger.causes import AccountKind
from billing.ledger.selectors import balance_nanos
from billing.payments.errors import StripeRefused
from billing.payments.models import PaymentMethod, StripePayment
from billing.payments.services.methods import remove_method
from billing.payments.stripe_api import StripeApi
from billing.payments.syncing import sync_payment
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from tests.fixtures.organizations import SeededOrganization
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


def test_a_saved_card_tops_up(org: SeededOrganization, stripe: StripeDouble) -> None:
    save_card(org, stripe)
    payment = ask_top_up(org, 5_000)
    assert (payment.status, stripe.succeeded()) == ("created", [])
    settle(stripe)
    payment.refresh_from_db()
    assert payment.status == "succeeded"
    assert payment.receipt_url.startswith("https://pay.stripe.com/receipts/")
    assert balance_cents(org) == 5_000
    assert balance_nanos(org.id, AccountKind.CASH) == 5_000 * 10_000_000
    (intent,) = stripe.succeeded()
    assert (intent["amount"], intent["metadata"]["penstock_payment"]) == (5_000, payment.id)


def test_the_first_top_up_goes_through_stripes_page_and_saves_the_card(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    payment = ask_checkout(org, 2_500)
    assert payment.action_url.startswith("https://checkout.stripe.com/")
    assert payment.status == "open"
    stripe.pay(payment.checkout_id or "")
    deliver(stripe)
    payment.refresh_from_db()
    assert (payment.status, balance_cents(org)) == ("succeeded", 2_500)
    saved = PaymentMethod.objects.get(organization_id=org.id)
    assert (str(saved), saved.kind, saved.is_default) == ("Visa …4242", "card", True)
    assert payment.method == saved


def test_the_return_page_needs_no_webhook(org: SeededOrganization, stripe: StripeDouble) -> None:
    payment = ask_checkout(org, 2_500)
    stripe.pay(payment.checkout_id or "")
    sync_payment(payment, now=timezone.now())
    assert balance_cents(org) == 2_500
    deliver(stripe)
    assert balance_cents(org) == 2_500


def test_a_page_may_see_a_declined_card_first(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    payment = ask_checkout(org)
    stripe.pay(payment.checkout_id or "", "pm_card_chargeDeclined")
    deliver(stripe)
    payment.refresh_from_db()
    assert payment.status == "open"
    stripe.pay(payment.checkout_id or "")
    deliver(stripe)
    assert balance_cents(org) == 5_000


def test_a_page_that_nobody_paid_ends(org: SeededOrganization, stripe: StripeDouble) -> None:
    payment = ask_checkout(org)
    stripe.expire(payment.checkout_id or "")
    deliver(stripe)
    payment.refresh_from_db()
    assert (payment.status, balance_cents(org)) == ("canceled", 0)


@pytest.mark.parametrize(
    ("token", "code"),
    [
        ("pm_card_chargeCustomerFail", "generic_decline"),
        ("pm_card_authenticationRequired", "authentication_required"),
    ],
)
def test_a_declined_payment_says_why_and_gives_nothing(
    org: SeededOrganization, stripe: StripeDouble, token: str, code: str
) -> None:
    save_card(org, stripe, token)
    payment = ask_top_up(org)
    payment.purpose = "automatic"
    payment.save()
    settle(stripe)
    payment.refresh_from_db()
    assert (payment.status, payment.failure_code) == ("failed", code)
    assert "declined" in payment.failure_words
    assert balance_cents(org) == 0


def test_a_customer_at_the_screen_confirms_to_their_bank(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe, "pm_card_authenticationRequired")
    payment = ask_top_up(org)
    settle(stripe)
    payment.refresh_from_db()
    assert payment.status == "requires_action"
    assert payment.action_url.startswith("https://hooks.stripe.com/3d_secure/")
    stripe.confirm(payment.intent_id or "")
    deliver(stripe)
    assert balance_cents(org) == 5_000


@pytest.mark.parametrize("is_paid", [True, False])
def test_a_bank_account_takes_days(
    org: SeededOrganization, stripe: StripeDouble, is_paid: bool
) -> None:
    method = save_card(org, stripe, "pm_usBankAccount_success")
    assert (method.kind, method.last4) == ("bank", "6789")
    payment = ask_top_up(org)
    settle(stripe)
    payment.refresh_from_db()
    assert (payment.status, balance_cents(org)) == ("processing", 0)
    stripe.settle_debit(payment.intent_id or "", is_paid=is_paid)
    deliver(stripe)
    payment.refresh_from_db()
    assert payment.status == ("succeeded" if is_paid else "failed")
    assert balance_cents(org) == (5_000 if is_paid else 0)


def test_a_bank_account_on_the_page_may_bounce_days_later(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    payment = ask_checkout(org)
    stripe.pay(payment.checkout_id or "", "pm_usBankAccount_success")
    deliver(stripe)
    payment.refresh_from_db()
    assert payment.status == "processing"
    stripe.settle_debit(payment.intent_id or "", is_paid=False)
    deliver(stripe)
    payment.refresh_from_db()
    assert (payment.status, payment.failure_code) == ("failed", "insufficient_funds")
    assert balance_cents(org) == 0


def test_a_repeat_is_the_same_payment(org: SeededOrganization, stripe: StripeDouble) -> None:
    save_card(org, stripe)
    first, second = ask_top_up(org, key="k"), ask_top_up(org, key="k")
    assert first == second
    settle(stripe)
    assert (len(stripe.succeeded()), balance_cents(org)) == (1, 5_000)
    with pytest.raises(Conflict, match="another payment") as refused:
        ask_top_up(org, 6_000, key="k")
    assert refused.value.param == "Idempotency-Key"


@pytest.mark.parametrize("cents", [0, -5_000, 499, 5_000_001, 10**30])
def test_a_bad_amount_is_named(org: SeededOrganization, stripe: StripeDouble, cents: int) -> None:
    with pytest.raises(InvalidValue) as refused:
        ask_checkout(org, cents)
    assert refused.value.param == "amount_cents"
    assert not StripePayment.objects.exists()


def test_who_may_not_pay_does_not(
    org: SeededOrganization, outsider: SeededOrganization, stripe: StripeDouble
) -> None:
    method = save_card(org, stripe)
    developer = org.actor_of(org.join("developer"))
    for actor, error in ((developer, NotPermitted), (outsider.actor, ObjectNotFound)):
        with pytest.raises(error):
            ask_top_up(org, method=method, actor=actor)
    assert not StripePayment.objects.exists()


def test_what_is_paid_is_never_changed(org: SeededOrganization, stripe: StripeDouble) -> None:
    save_card(org, stripe)
    payment = ask_top_up(org)
    settle(stripe)
    for act in (
        lambda: StripePayment.objects.filter(id=payment.id).update(amount_cents=1),
        lambda: StripePayment.objects.filter(id=payment.id).delete(),
    ):
        with pytest.raises(ProgrammingError, match="Cannot"), transaction.atomic():
            act()


def test_a_method_that_was_removed_meanwhile_pays_nothing(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    method = save_card(org, stripe)
    payment = ask_top_up(org)
    remove_method(
        organization=org.organization, method_id=method.id, actor=org.actor, now=timezone.now()
    )
    settle(stripe)
    payment.refresh_from_db()
    assert (payment.status, payment.failure_code) == ("failed", "method_removed")
    assert (stripe.all("payment_intent"), balance_cents(org)) == ([], 0)


def test_a_page_that_stripe_refuses_ends_its_payment_in_our_words(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise StripeRefused("Your account acct_17 cannot currently make charges.")

    monkeypatch.setattr(StripeApi, "create_session", refused)
    with pytest.raises(Conflict) as told:
        ask_checkout(org, key="one")
    assert "acct_17" not in str(told.value)
    payment = StripePayment.objects.get()
    assert (payment.status, payment.failure_code) == ("canceled", "refused")
    assert "acct_17" not in payment.failure_words
    assert payment.stripe_words == "Your account acct_17 cannot currently make charges."
    with pytest.raises(Conflict) as again:
        ask_checkout(org, key="one")
    assert (again.value.code, StripePayment.objects.count()) == ("stripe_refused", 1)
    with pytest.raises(Conflict, match="opens no page"):
        save_card(org, stripe)
