"""The operator's pages of payments: what waits, what does not fit, refunds, codes."""

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing.payments.models import Gap, PromotionalCode, Refund, StripePayment
from billing.payments.nights import reconcile
from control.accounts.models import User
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.paying import ask_checkout, ask_top_up, balance_cents, save_card, settle
from tests.simulation.stripe_double import StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root@penstock.example", "x"))
    return client


@pytest.fixture
def paid(org: SeededOrganization, stripe: StripeDouble) -> StripePayment:
    save_card(org, stripe)
    payment = ask_top_up(org, 10_000)
    settle(stripe)
    return payment


def test_the_page_says_whether_the_books_agree(
    operator: Client, org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    address = reverse("admin:payments_standing")
    assert "Not checked yet" in operator.get(address).content.decode()
    stripe.pay_unasked(ask_checkout(org).customer_stripe_id, 3_000)
    stripe.open_dispute(str(StripePayment.objects.get(id=paid.id).intent_id), asks=True)
    settle(stripe)
    now = timezone.now() + timedelta(seconds=2)
    reconcile(starts_at=now - timedelta(days=1), ends_at=now, now=now)
    shown = operator.get(address).content.decode()
    assert "Payment at Stripe without a record here" in shown
    assert "fraudulent" in shown


def test_without_stripe_the_page_says_so(operator: Client) -> None:
    shown = operator.get(reverse("admin:payments_standing")).content.decode()
    assert "Stripe is not set up" in shown


@pytest.mark.parametrize(
    "name",
    ["stripepayment", "refund", "dispute", "gap", "reconciliation", "stripeevent",
     "promotionalcode"],
)  # fmt: skip
def test_every_list_opens(operator: Client, paid: StripePayment, name: str) -> None:
    assert operator.get(reverse(f"admin:payments_{name}_changelist")).status_code == 200


def test_a_payment_is_refunded_once_per_form(
    operator: Client, org: SeededOrganization, stripe: StripeDouble, paid: StripePayment
) -> None:
    address = reverse("admin:payments_stripepayment_refund", args=[paid.id])
    assert "$100.00" in operator.get(address).content.decode()
    form = {"amount_nanos": "25", "reason": "Asked for", "idempotency_key": "admin:1"}
    for _ in range(2):
        assert operator.post(address, form).status_code == 302
    settle(stripe)
    assert (Refund.objects.get().status, balance_cents(org)) == ("succeeded", 7_500)
    refused = operator.post(address, form | {"amount_nanos": "0.001", "idempotency_key": "admin:2"})
    assert "whole cents" in refused.content.decode()


def test_an_unmatched_payment_is_credited(
    operator: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    stripe.pay_unasked(ask_checkout(org).customer_stripe_id, 3_000)
    settle(stripe)
    gap = Gap.objects.get()
    address = reverse("admin:payments_gap_credit", args=[gap.pk])
    assert operator.post(address, {"organization": org.id, "reason": "x"}).status_code == 302
    assert balance_cents(org) == 3_000
    gap.refresh_from_db()
    assert not gap.is_open


def test_a_gap_is_dismissed(
    operator: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    stripe.pay_unasked(ask_checkout(org).customer_stripe_id, 3_000)
    settle(stripe)
    address = reverse("admin:payments_gap_dismiss", args=[Gap.objects.get().pk])
    assert operator.post(address, {"reason": "Paid back by hand"}).status_code == 302
    assert Gap.objects.get().closed_because == "Paid back by hand"


def test_a_code_is_made_and_ended(operator: Client) -> None:
    form = {"code": "spring", "amount": "25", "redemptions_max": "10"}
    reply = operator.post(reverse("admin:payments_promotionalcode_add"), form)
    assert reply.status_code == 302
    code = PromotionalCode.objects.get()
    assert (code.code, code.amount_nanos) == ("SPRING", 25 * 10**9)
    page = reverse("admin:payments_promotionalcode_change", args=["SPRING"])
    assert operator.get(page).status_code == 200
    action = {"action": "end", "_selected_action": ["SPRING"]}
    operator.post(reverse("admin:payments_promotionalcode_changelist"), action)
    code.refresh_from_db()
    assert code.ended_at is not None


def test_only_staff_look(org: SeededOrganization) -> None:
    client = org.browser()
    assert client.get(reverse("admin:payments_standing")).status_code == 302
