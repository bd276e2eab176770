"""The Billing page: what is left, topping up, methods, automatic top-ups, codes, payments."""

import dataclasses
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from allauth.account.models import EmailAddress
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from billing.alerts.models import DaySpend
from billing.credit.models import GrantKind
from billing.credit.services.budgets import suspend_credit_limit
from billing.credit.services.grants import expire_grants, grant_credit
from billing.credit.services.payments import record_payment
from billing.credit.services.reversals import take_back
from billing.invoicing.invoice_requests import A_DAY
from billing.ledger.causes import Cause
from billing.payments.models import AutoTopUp, StripePayment
from billing.payments.services.codes import make_code
from control.accounts.models import User
from control.audit.models import AuditEvent
from control.organizations.services import set_organization_terms
from tests.fixtures.mails import delivered, html_of
from tests.fixtures.operator_tokens import make_operator
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.paying import (
    ask_top_up,
    balance_cents,
    deliver,
    in_place_of_stripe,
    save_card,
    settle,
)
from tests.simulation.stripe_double import Fault, StripeDouble
from web.console.base import address
from web.console.billing.forms import CentsField

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture
def stripe(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[StripeDouble]:
    with in_place_of_stripe(settings, monkeypatch) as double:
        yield double


def url(org: SeededOrganization, section: str = "billing", *arguments: str) -> str:
    return address(org.organization, section, *arguments)


def page(client: Client, org: SeededOrganization) -> str:
    reply = client.get(url(org))
    assert reply.status_code == 200
    return reply.content.decode()


def top_up(client: Client, org: SeededOrganization, **changes: str) -> Any:
    form = {"choice": "5000", "method": "new", "form_id": "f1"} | changes
    return client.post(url(org, "billing_top_up"), form)


def test_the_credit_limit_is_shown_to_who_pays_later(
    member: Client, org: SeededOrganization
) -> None:
    """$20 of $100 are owed; then collection suspends the credit limit."""
    assert "Credit limit" not in page(member, org)
    set_organization_terms(
        actor=OPERATOR, organization=org.organization, billing_mode="postpaid",
        spend_limit_nanos=None, weight=1, credit_limit_nanos=100 * 10**9,
    )  # fmt: skip
    owed = balance_cents(org) + 2_000
    take_back(
        organization_id=org.id, amount_nanos=owed * 10_000_000, tax_nanos=0, cause=Cause.REFUND,
        key="spent", actor=OPERATOR, now=timezone.now(),
    )  # fmt: skip
    shown = re.sub(r"<[^>]+>", "", page(member, org))
    assert "$100.00" in shown
    assert "$80.00 of it is left, before tax" in shown
    suspend_credit_limit(org.id, now=timezone.now())
    assert "suspended until the overdue payment arrives" in page(member, org)


def test_a_top_up_leads_to_stripes_page_and_back(
    member: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    before = balance_cents(org)
    reply = top_up(member, org)
    payment = StripePayment.objects.get()
    assert reply.status_code == 302
    going = member.get(reply["location"]).content.decode()
    assert f'content="0;url={payment.action_url}"' in going
    stripe.pay(payment.checkout_id or "")
    back = member.get(url(org, "billing_payment", payment.id)).content.decode()
    assert "$50.00" in back
    assert "of credit was added" in back
    assert balance_cents(org) == before + 5_000
    assert "Visa …4242" in page(member, org)


def test_the_same_form_sent_twice_is_one_payment(
    member: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    first, second = top_up(member, org), top_up(member, org)
    assert first["location"] == second["location"]
    assert StripePayment.objects.count() == 1


def test_a_saved_card_is_charged_by_the_worker(
    member: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    method = save_card(org, stripe)
    reply = top_up(member, org, choice="other", other="12.50", method=method.id)
    waiting = member.get(reply["location"].replace("?go=1", "")).content.decode()
    assert "Your payment is being charged" in waiting
    settle(stripe)
    assert "Paid" in member.get(reply["location"]).content.decode()
    assert stripe.succeeded()[0]["amount"] == 1_250


def test_tax_is_shown_before_a_saved_card_is_charged(
    member: Client,
    org: SeededOrganization,
    stripe: StripeDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taxes = iter([950, 1_000, 1_000, 1_000])
    monkeypatch.setattr(
        "billing.payments.services.asking.tax_on_top_up", lambda *_, **__: next(taxes)
    )
    method = save_card(org, stripe)
    shown = top_up(member, org, method=method.id)
    assert (shown.status_code, StripePayment.objects.count()) == (200, 0)
    assert "$59.50" in shown.content.decode()
    # It is another by now, and shown again.
    again = top_up(member, org, method=method.id, agreed_cents="5950")
    assert "$60.00" in again.content.decode()
    assert not StripePayment.objects.exists()
    assert top_up(member, org, method=method.id, agreed_cents="6000").status_code == 302
    settle(stripe)
    assert stripe.succeeded()[0]["amount"] == 6_000


def test_a_bank_that_asks_is_one_click_away(
    member: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    method = save_card(org, stripe, "pm_card_authenticationRequired")
    reply = top_up(member, org, method=method.id)
    settle(stripe)
    shown = member.get(reply["location"].replace("?go=1", "")).content.decode()
    assert "Confirm with your bank" in shown
    assert "https://hooks.stripe.com/3d_secure/" in shown


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"choice": "other", "other": ""}, "Enter an amount."),
        ({"choice": "other", "other": "4.99"}, "Enter an amount from $5.00 to $50,000.00"),
        ({"choice": "other", "other": "-5"}, "is not an amount in dollars"),
        ({"choice": "other", "other": "NaN"}, "is not an amount in dollars"),
        ({"choice": "other", "other": "10.001"}, "in whole cents"),
        ({"choice": "1"}, "Select a valid choice"),
        ({"method": "method_other"}, "Select a valid choice"),
    ],
)
def test_a_bad_form_says_why_and_keeps_what_was_typed(
    member: Client,
    org: SeededOrganization,
    stripe: StripeDouble,
    changes: dict[str, str],
    words: str,
) -> None:
    reply = top_up(member, org, **changes)
    shown = reply.content.decode()
    assert reply.status_code == 400
    assert words in shown
    assert 'value="f1"' in shown
    assert changes.get("other", "") in shown
    assert not StripePayment.objects.exists()


@pytest.mark.parametrize(
    ("typed", "cents"),
    [("$1,000.50", 100_050), ("1\u202f000,50", 100_050), ("$250", 25_000), (" 5 ", 500)],
)
def test_an_amount_is_taken_as_the_console_prints_it(typed: str, cents: int) -> None:
    assert CentsField(least=500, most=5_000_000).clean(typed) == cents


def test_an_amount_with_two_readings_names_both() -> None:
    with pytest.raises(ValidationError, match=r"\$5\.00 or \$5,000\.00"):
        CentsField(least=500, most=5_000_000).clean("5.000")


def test_a_stripe_that_is_away_is_told_in_the_form(
    member: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    stripe.faults.append(Fault("lost_before", "customers", times=3))
    reply = top_up(member, org)
    assert reply.status_code == 400
    assert "does not answer" in reply.content.decode()
    assert top_up(member, org).status_code == 302


def test_a_method_is_saved_on_stripes_page(
    member: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    reply = member.post(url(org, "billing_method_new"))
    session = stripe.all("checkout.session")[0]
    assert session["url"] in reply.content.decode()
    stripe.save(session["id"], "pm_card_mastercard")
    back = member.get(url(org, "billing_saved"), {"session": session["id"]}, follow=True)
    assert "The payment method is saved." in back.content.decode()
    assert "Mastercard" in back.content.decode()


def test_methods_change_places_and_go(
    member: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    first, second = save_card(org, stripe), save_card(org, stripe, "pm_card_mastercard")
    member.post(url(org, "billing_method_default", second.id))
    member.post(url(org, "billing_method_remove", first.id))
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.detached_at is None, second.is_default) == (False, True)


def test_automatic_top_ups_are_set(
    member: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    form = {
        "is_on": "on", "threshold_cents": "10", "amount_cents": "50", "monthly_cap_cents": "200",
    }  # fmt: skip
    refused = member.post(url(org, "billing_automatic"), form)
    assert "Save a payment method first." in refused.content.decode()
    save_card(org, stripe)
    assert member.post(url(org, "billing_automatic"), form).status_code == 302
    settings = AutoTopUp.objects.get()
    assert (settings.threshold_cents, settings.amount_cents) == (1_000, 5_000)
    low = member.post(url(org, "billing_automatic"), form | {"monthly_cap_cents": "20"})
    assert "wanted 5000" in low.content.decode()


def test_a_code_is_redeemed_once(member: Client, org: SeededOrganization) -> None:
    EmailAddress.objects.create(user=org.owner, email=org.owner.email, verified=True, primary=True)
    make_code(code="HELLO", amount_nanos=10**10, actor=OPERATOR, now=timezone.now())
    done = member.post(url(org, "billing_code"), {"code": "hello"}, follow=True)
    assert "$10.00 of credit was added." in done.content.decode()
    again = member.post(url(org, "billing_code"), {"code": "hello"})
    assert "You have used this code already." in again.content.decode()


def payments_page(member: Client, org: SeededOrganization) -> str:
    """Return the page of payments."""
    return member.get(url(org, "billing_payments")).content.decode()


def test_without_stripe_the_page_says_how_to_pay(member: Client, org: SeededOrganization) -> None:
    record_payment(
        organization_id=org.organization.id, amount_nanos=75 * 10**9, idempotency_key="wire",
        actor=OPERATOR, reason="Wire of 3 May", now=timezone.now(),
    )  # fmt: skip
    shown = page(member, org)
    assert "Pay by bank transfer" in shown
    assert org.organization.id in shown
    assert "Add credits</button>" not in shown
    assert "$75.00" in shown
    assert "Wire of 3 May" in payments_page(member, org)


def test_payments_show_with_receipts_and_reasons(
    member: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe)
    ask_top_up(org)
    settle(stripe)
    assert "https://pay.stripe.com/receipts/" in payments_page(member, org)
    assert "test mode" in page(member, org)
    deliver(stripe)


def test_a_payment_of_another_organization_looks_missing(
    member: Client, org: SeededOrganization, outsider: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(outsider, stripe)
    payment = ask_top_up(outsider)
    assert member.get(url(org, "billing_payment", payment.id)).status_code == 404
    assert top_up(member, org, method=str(payment.method_id)).status_code == 400


def test_the_runway_is_told(member: Client, org: SeededOrganization) -> None:
    assert "no usage in the last 7 days" in page(member, org)
    today = timezone.now().date()
    DaySpend.objects.create(
        organization_id=org.id, day=today, nanos=10**10, busiest_hour_nanos=10**10
    )
    record_payment(
        organization_id=org.id, amount_nanos=75 * 10**9, idempotency_key="wire",
        actor=OPERATOR, reason="Wire", now=timezone.now(),
    )  # fmt: skip
    assert "7 days</dd>" in page(member, org)


def expiring_credit(org: SeededOrganization, minutes: int, dollars: int, key: str) -> None:
    now = timezone.now() - timedelta(hours=2)
    grant_credit(
        organization_id=org.id, kind=GrantKind.PROMOTIONAL, amount_nanos=dollars * 10**9,
        idempotency_key=key, actor=OPERATOR, reason="gift", now=now,
        expires_at=timezone.now() + timedelta(minutes=minutes),
    )  # fmt: skip


def test_credit_that_expires_is_listed_and_not_counted_on(
    member: Client, org: SeededOrganization
) -> None:
    record_payment(
        organization_id=org.id, amount_nanos=14 * 10**9, idempotency_key="pay", actor=OPERATOR,
        reason="Wire", now=timezone.now(),
    )  # fmt: skip
    expiring_credit(org, 1, 500, "gift")
    shown = page(member, org)
    assert "$500.00</span> expires if it is not used" in shown
    DaySpend.objects.create(
        organization_id=org.id, day=timezone.now().date(), nanos=10**9, busiest_hour_nanos=10**9
    )
    shown = page(member, org)
    kept = balance_cents(org) // 100 - 500
    assert f"{kept} days" in shown
    assert "will expire unused at this pace" in shown
    assert "Promotional" in shown
    assert "Prepaid" in shown


def test_credit_that_expired_is_a_line_in_payments(member: Client, org: SeededOrganization) -> None:
    where = url(org, "billing_payments")
    assert "expired" not in member.get(where).content.decode().replace("credit that expired", "")
    expiring_credit(org, -90, 500, "gift")
    expire_grants(now=timezone.now())
    shown = member.get(where).content.decode()
    assert "Promotional credit expired" in shown
    assert "-$500.00" in shown
    assert '<span class="badge badge-warn">Expired</span>' in page(member, org)


INVOICE = {"amount_cents": "1250.50", "note": "PO 4711", "form_id": "f1"}


@pytest.mark.parametrize("contact", ["support@penstock.example", ""])
def test_without_stripe_billing_leads_to_the_operator(
    member: Client, org: SeededOrganization, settings, contact: str
) -> None:
    settings.CONFIG = dataclasses.replace(settings.CONFIG, stripe=None, support_email=contact)
    for role in ("finance", "owner", "support"):
        make_operator(role)
    shown = page(member, org)
    assert "Pay by bank transfer" in shown
    assert 'id="request-invoice"' in shown
    assert (f'href="mailto:{contact}"' in shown) is bool(contact)
    for _ in range(2):  # a double click asks once
        done = member.post(url(org, "billing_request_invoice"), INVOICE, follow=True)
        assert "asked for an invoice of $1,250.50" in done.content.decode()
    messages = delivered()
    operators = ["finance@operators.example", "owner@operators.example"]
    assert sorted(each.to[0] for each in messages) == ([contact] if contact else operators)
    message = messages[0]
    assert message.subject == "Acme Research asks for an invoice of $1,250.50"
    operator = Client()
    operator.force_login(User.objects.get(email="owner@operators.example"))
    for text in (str(message.body), html_of(message)):
        assert "PO 4711" in text
        assert org.id in text
        for place in ("/admin/organizations/organization/", "/admin/credit/payment/add/"):
            [link] = {each for each in re.findall(r"https?://[^\s\"<]+", text) if place in each}
            assert operator.get(urlsplit(link).path).status_code == 200
    event = AuditEvent.objects.get(action="invoice.requested")
    assert event.details == {"amount_cents": 125_050, "note": "PO 4711"}
    other = member.post(url(org, "billing_request_invoice"), INVOICE | {"amount_cents": "9"})
    assert (other.status_code, "another invoice" in other.content.decode()) == (400, True)


def test_with_stripe_no_invoice_is_requested(
    member: Client, org: SeededOrganization, stripe: StripeDouble
) -> None:
    late = member.post(url(org, "billing_request_invoice"), INVOICE)
    assert (late.status_code, "requested any more" in late.content.decode()) == (400, True)


def test_requests_for_invoices_are_bounded_and_nothing_typed_is_lost(
    member: Client, org: SeededOrganization, settings
) -> None:
    settings.CONFIG = dataclasses.replace(settings.CONFIG, stripe=None, support_email="")
    nobody = member.post(url(org, "billing_request_invoice"), INVOICE)
    assert (nobody.status_code, "PO 4711" in nobody.content.decode()) == (400, True)
    make_operator("finance")
    low = member.post(url(org, "billing_request_invoice"), INVOICE | {"amount_cents": "1"})
    assert (low.status_code, "PO 4711" in low.content.decode()) == (400, True)
    replies = [
        member.post(url(org, "billing_request_invoice"), INVOICE | {"form_id": f"f{number}"})
        for number in range(A_DAY + 1)
    ]
    assert [reply.status_code for reply in replies] == [*[302] * A_DAY, 400]
    assert "Try again tomorrow" in replies[-1].content.decode()
