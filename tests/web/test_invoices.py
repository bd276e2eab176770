"""The pages of invoices: the running month, the list, the document, and who may see them."""

from datetime import timedelta

import pytest
from django.template.loader import render_to_string
from django.utils import timezone

from billing.invoicing.models import Invoice
from billing.invoicing.periods import last_period
from billing.invoicing.services.closing import close_month
from billing.invoicing.services.notes import issue_credit_note
from control.permissions import Actor
from tests.fixtures.collecting import owe, pay
from tests.fixtures.following import finish
from tests.fixtures.invoicing import MILLION_CENTS, use_cents
from tests.fixtures.organizations import SeededOrganization, make_organization
from tests.fixtures.paying import in_place_of_stripe
from tests.fixtures.usage import Customer, make_key, make_price, roll_up

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
OPERATOR = Actor.for_system("tests")


@pytest.fixture
def org() -> SeededOrganization:
    return make_organization("Acme")


@pytest.fixture
def used(org: SeededOrganization) -> Customer:
    """A thousand cents used last month, which is closed, and a hundred in this one."""
    customer = Customer(org.organization, org.project, make_key(org.project))
    now = timezone.now()
    last = last_period(now)
    price = make_price("by-the-cent", at=last.starts_at, **MILLION_CENTS)
    use_cents(customer, price, 1000, last.starts_at.replace(day=5))
    over = max(now, last.ends_at + timedelta(hours=2))  # when a month's last day is closed
    finish(over)
    close_month(period=last, actor=OPERATOR, now=over)
    use_cents(customer, price, 100, now)
    roll_up()
    return customer


@pytest.fixture
def invoice(used: Customer) -> Invoice:
    return Invoice.objects.get(organization_id=used.id)


def test_the_list_shows_the_running_month_and_the_invoices(org, invoice):
    text = org.browser().get(f"/{org.id}/invoices").content.decode()
    assert "$1.00" in text  # so far
    assert "At this pace" in text
    assert invoice.number in text
    assert "$10.00" in text
    assert f"/{org.id}/invoices/{invoice.id}.pdf" in text


def test_an_invoice_is_a_page_whose_lines_open_their_requests(org, invoice):
    browser = org.browser()
    text = browser.get(f"/{org.id}/invoices/{invoice.id}").content.decode()
    for words in (invoice.number, "Output tokens", "1,000", "$10.00", "Amount due", "<svg"):
        assert words in text
    line = invoice.lines.get()
    address = f"/{org.id}/requests?price={line.price_id}&amp;from={invoice.starts_on}"
    assert address in text
    found = browser.get(address.replace("&amp;", "&") + f"&to={invoice.period.last_day}")
    assert found.status_code == 200
    assert b"$10.00" in found.content


def test_documents_are_pdf(org, invoice):
    note = issue_credit_note(
        invoice_id=invoice.id, idempotency_key="1", actor=OPERATOR, reason="a mistake",
        now=timezone.now(),
    )  # fmt: skip
    browser = org.browser()
    for path in (
        f"invoices/{invoice.id}.pdf", "invoices/running.pdf", f"credit-notes/{note.id}.pdf",
    ):  # fmt: skip
        answer = browser.get(f"/{org.id}/{path}")
        assert answer["Content-Type"] == "application/pdf"
        assert answer.content.startswith(b"%PDF-")
    text = browser.get(f"/{org.id}/invoices/{invoice.id}").content.decode()
    assert note.number in text
    assert "Void" in text


def test_an_organization_without_usage_is_told_so(org):
    text = org.browser().get(f"/{org.id}/invoices").content.decode()
    assert "Nothing used this month yet" in text


def test_what_stripe_would_charge_is_offered_to_be_paid(org, settings, monkeypatch):
    with in_place_of_stripe(settings, monkeypatch):
        [invoice] = owe(org, cents=50)
        where, browser = f"/{org.id}/invoices/{invoice.id}", org.browser()
        assert "Pay $0.50" in browser.get(where).content.decode()
        pay(org, cents=1, at=timezone.now())
        page = browser.get(where).content.decode()
        assert "$0.49 left to pay" in page
        assert f"{where}/pay" not in page


def test_a_hostile_name_is_text():
    title = "<script>alert(1)</script>"
    issued = render_to_string(
        "console/invoice_lines.html", {"groups": [{"title": title, "rows": []}]}
    )
    assert "&lt;script&gt;" in issued
    assert "<script>" not in issued
