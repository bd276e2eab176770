"""Invoices collected by card, and what refunds, disputes and taxes do to them."""

import copy
from collections.abc import Iterator
from datetime import timedelta

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from billing.credit.selectors import balances_nanos, owed_nanos
from billing.invoicing.models import Invoice
from billing.invoicing.printed import dollars
from billing.invoicing.selectors import Standing, open_invoices, standing
from billing.invoicing.services.disputes import open_dispute
from billing.payments.models import StripePayment
from billing.payments.services import charge_invoice, start_invoice_checkout
from control.errors import Conflict, NotPermitted, ObjectNotFound
from control.outbox.services import deliver_due
from control.permissions import Role
from tests.fixtures.invoicing import OPERATOR, InvoicedMonth, make_invoiced_month, sound
from tests.fixtures.kept import kept
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.paying import ask_top_up, deliver, save_card, settle
from tests.simulation.stripe_double import StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture(scope="module")
def month(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[InvoicedMonth]:
    yield from kept(django_db_blocker, make_invoiced_month)


@pytest.fixture
def org(month: InvoicedMonth, db: None) -> SeededOrganization:
    return copy.deepcopy(month.org)


@pytest.fixture
def invoiced(month: InvoicedMonth, db: None) -> Invoice:
    return copy.deepcopy(month.invoice)


def pay(invoice: Invoice, double: StripeDouble) -> StripePayment:
    payment = charge_invoice(invoice.id, now=timezone.now())
    settle(double)
    payment.refresh_from_db()
    return payment


def test_an_invoice_is_collected_with_the_default_card(
    org: SeededOrganization, stripe: StripeDouble, invoiced: Invoice
) -> None:
    save_card(org, stripe)
    payment = pay(invoiced, stripe)
    assert (payment.status, payment.total_cents) == ("succeeded", invoiced.total_cents)
    assert standing(invoiced).is_settled
    assert (owed_nanos(org.id), open_invoices(org.id)) == (0, [])
    with pytest.raises(Conflict, match="Nothing is left"):
        charge_invoice(invoiced.id, now=timezone.now())
    assert sound()


def test_a_charged_invoice_is_told_by_its_number(
    org: SeededOrganization, stripe: StripeDouble, invoiced: Invoice
) -> None:
    address = org.owner.email
    EmailAddress.objects.create(user=org.owner, email=address, verified=True, primary=True)
    save_card(org, stripe)
    pay(invoiced, stripe)
    deliver_due(now=timezone.now())
    [told] = [one for one in mail.outbox if one.subject.startswith("Payment received")]
    total = dollars(invoiced.total_cents)
    assert told.subject == f"Payment received from {org.organization.name}: {total}"
    assert f"Invoice {invoiced.number}" in str(told.body)
    assert "Tax" not in str(told.body)  # the invoice states it


def test_while_one_is_under_way_there_is_no_other(
    org: SeededOrganization, stripe: StripeDouble, invoiced: Invoice
) -> None:
    save_card(org, stripe)
    asked = {charge_invoice(invoiced.id, now=timezone.now()).id for _ in range(3)}
    settle(stripe)
    assert len(asked) == len(stripe.succeeded()) == 1


def test_a_declined_one_may_be_tried_again(
    org: SeededOrganization, stripe: StripeDouble, invoiced: Invoice
) -> None:
    save_card(org, stripe, "pm_card_chargeCustomerFail")
    assert pay(invoiced, stripe).status == "failed"
    assert not standing(invoiced).is_settled
    second = pay(invoiced, stripe)
    assert (second.status, second.idempotency_key[-2:]) == ("failed", ":2")
    assert stripe.succeeded() == []


def test_a_dispute_opens_the_invoice_again_and_a_won_one_settles_it(
    org: SeededOrganization, stripe: StripeDouble, invoiced: Invoice
) -> None:
    save_card(org, stripe)
    pay(invoiced, stripe)
    dispute = stripe.open_dispute(stripe.succeeded()[0]["id"])
    deliver(stripe)
    assert not standing(invoiced).is_settled
    assert owed_nanos(org.id) == invoiced.total_cents * 10_000_000
    stripe.close_dispute(dispute["id"], is_won=True)
    deliver(stripe)
    assert standing(invoiced).is_settled
    assert balances_nanos([org.id])[org.id] == 0
    assert sound()


def open_page(org: SeededOrganization, invoice: Invoice) -> StripePayment:
    return start_invoice_checkout(
        organization=org.organization,
        invoice_id=invoice.id,
        actor=org.actor,
        now=timezone.now(),
    )


def test_a_member_pays_an_invoice_on_stripes_page_with_any_card_and_no_tax_anew(
    org: SeededOrganization, stripe: StripeDouble, invoiced: Invoice
) -> None:
    payment = open_page(org, invoiced)
    assert open_page(org, invoiced).id == payment.id
    session = stripe.get("checkout.session", payment.checkout_id)
    assert session["amount_total"] == invoiced.total_cents
    stripe.pay(payment.checkout_id, "pm_card_visa")
    deliver(stripe)
    payment.refresh_from_db()
    assert (payment.status, payment.purpose, payment.tax_cents) == ("succeeded", "invoice", 0)
    assert standing(invoiced).is_settled
    assert balances_nanos([org.id])[org.id] == 0
    with pytest.raises(Conflict, match="Nothing is left"):
        open_page(org, invoiced)
    assert sound()


def test_while_a_page_is_open_no_card_is_charged_beside_it(
    org: SeededOrganization, stripe: StripeDouble, invoiced: Invoice
) -> None:
    save_card(org, stripe)
    open_page(org, invoiced)
    with pytest.raises(Conflict) as refused:
        charge_invoice(invoiced.id, now=timezone.now())
    assert refused.value.code == "payment_open"
    settle(stripe)
    assert stripe.succeeded() == []


def test_while_a_card_is_charged_no_page_opens(
    org: SeededOrganization, stripe: StripeDouble, invoiced: Invoice
) -> None:
    save_card(org, stripe)
    charged = charge_invoice(invoiced.id, now=timezone.now())
    assert open_page(org, invoiced).id == charged.id
    settle(stripe)
    assert [each["amount"] for each in stripe.succeeded()] == [invoiced.total_cents]


def test_who_may_not_pay_opens_no_page(
    org: SeededOrganization, outsider: SeededOrganization, stripe: StripeDouble, invoiced: Invoice
) -> None:
    viewer = org.actor_of(org.join(Role.VIEWER))
    now = timezone.now()
    for organization, actor, refusal in (
        (org.organization, viewer, NotPermitted),
        (org.organization, outsider.actor, ObjectNotFound),
        (outsider.organization, outsider.actor, ObjectNotFound),
    ):
        with pytest.raises(refusal):
            start_invoice_checkout(
                organization=organization, invoice_id=invoiced.id, actor=actor, now=now
            )
    open_dispute(invoice_id=invoiced.id, key="k", actor=OPERATOR, reason="wrong", now=now)
    with pytest.raises(Conflict, match="disputed"):
        open_page(org, invoiced)
    assert not StripePayment.objects.exists()


def test_without_a_card_or_an_invoice_nothing_is_asked(
    org: SeededOrganization, stripe: StripeDouble, invoiced: Invoice
) -> None:
    with pytest.raises(Conflict) as refused:
        charge_invoice(invoiced.id, now=timezone.now())
    assert refused.value.code == "no_payment_method"
    with pytest.raises(ObjectNotFound):
        charge_invoice("inv_none", now=timezone.now() + timedelta(days=1))


def test_a_charge_that_came_in_while_another_was_decided_is_not_made_again(
    org: SeededOrganization,
    stripe: StripeDouble,
    invoiced: Invoice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_card(org, stripe)
    first = charge_invoice(invoiced.id, now=timezone.now())

    def paid_meanwhile(invoice: Invoice) -> Standing:
        before = standing(invoice)
        settle(stripe)
        return before

    monkeypatch.setattr("billing.payments.services.invoices.standing", paid_meanwhile)
    assert charge_invoice(invoiced.id, now=timezone.now()) == first
    assert len(stripe.succeeded()) == 1


def test_a_customers_key_is_in_no_invoices_way(
    org: SeededOrganization, stripe: StripeDouble, invoiced: Invoice
) -> None:
    save_card(org, stripe)
    ask_top_up(org, 5_000, key=f"{invoiced.id}:1")
    assert charge_invoice(invoiced.id, now=timezone.now()).purpose == "invoice"
