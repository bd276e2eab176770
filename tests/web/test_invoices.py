"""The pages of invoices: the running month, the list, the document, and who may see them."""

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.invoicing.models import Invoice
from billing.invoicing.periods import last_period
from billing.invoicing.services.closing import close_month
from billing.invoicing.services.notes import issue_credit_note
from control.actor import system
from control.tenants.models import Role
from tests.support.following import finish
from tests.support.invoicing import MILLION_CENTS, use_cents
from tests.support.organizations import House, make_house
from tests.support.usage import Customer, make_key, make_price, roll_up

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
OPERATOR = system("tests")
QUERIES_MAX = 10


@pytest.fixture
def house() -> House:
    return make_house("Acme")


@pytest.fixture
def used(house: House) -> Customer:
    """A thousand cents used last month, which is closed, and a hundred in this one."""
    customer = Customer(house.organization, house.project, make_key(house.project))
    now = timezone.now()
    last = last_period(now)
    price = make_price("by-the-cent", at=last.starts_at, **MILLION_CENTS)
    use_cents(customer, price, 1000, last.starts_at.replace(day=5))
    finish(max(now, last.ends_at))
    close_month(period=last, actor=OPERATOR, now=max(now, last.ends_at))
    use_cents(customer, price, 100, datetime.now(UTC))
    roll_up()
    return customer


@pytest.fixture
def invoice(used: Customer) -> Invoice:
    return Invoice.objects.get(organization_id=used.id)


def test_the_list_shows_the_running_month_and_the_invoices(house, invoice):
    text = house.browser().get(f"/{house.id}/invoices").content.decode()
    assert "$1.00" in text  # so far
    assert "At this pace" in text
    assert invoice.number in text
    assert "$10.00" in text
    assert f"/{house.id}/invoices/{invoice.id}.pdf" in text


def test_an_invoice_is_a_page_whose_lines_open_their_requests(house, invoice):
    browser = house.browser()
    text = browser.get(f"/{house.id}/invoices/{invoice.id}").content.decode()
    for words in (invoice.number, "Output tokens", "1,000", "$10.00", "Amount due", "<svg"):
        assert words in text
    line = invoice.lines.get()
    address = f"/{house.id}/requests?price={line.price_id}&amp;from={invoice.starts_on}"
    assert address in text
    found = browser.get(address.replace("&amp;", "&") + f"&to={invoice.period.last_day}")
    assert found.status_code == 200
    assert b"$10.00" in found.content


def test_documents_are_pdf(house, invoice):
    note = issue_credit_note(
        invoice_id=invoice.id, idempotency_key="1", actor=OPERATOR, reason="a mistake",
        now=timezone.now(),
    )  # fmt: skip
    browser = house.browser()
    for path in (
        f"invoices/{invoice.id}.pdf", "invoices/running.pdf", f"credit-notes/{note.id}.pdf",
    ):  # fmt: skip
        answer = browser.get(f"/{house.id}/{path}")
        assert answer["Content-Type"] == "application/pdf"
        assert answer.content.startswith(b"%PDF-")
    text = browser.get(f"/{house.id}/invoices/{invoice.id}").content.decode()
    assert note.number in text
    assert "Taken back" in text


@pytest.mark.parametrize("path", ["invoices", "invoices/{}", "invoices/{}.pdf"])
def test_a_page_asks_the_database_little(house, invoice, path):
    browser = house.browser()
    with CaptureQueriesContext(connection) as asked:
        browser.get(f"/{house.id}/{path.format(invoice.id)}")
    assert len(asked) <= QUERIES_MAX, [one["sql"] for one in asked]


def test_an_organization_without_usage_is_told_so(house):
    text = house.browser().get(f"/{house.id}/invoices").content.decode()
    assert "Nothing used this month yet" in text


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.VIEWER])
def test_who_sees_no_money_sees_no_invoice(house, invoice, role):
    browser = house.browser(role)
    for path in ("invoices", f"invoices/{invoice.id}", f"invoices/{invoice.id}.pdf"):
        assert browser.get(f"/{house.id}/{path}").status_code == 403
    assert b"/invoices" not in browser.get(f"/{house.id}/usage").content


def test_an_outsider_learns_nothing(house, invoice):
    stranger = make_house("Stranger")
    browser = stranger.browser()
    for path in ("invoices", f"invoices/{invoice.id}", f"invoices/{invoice.id}.pdf"):
        assert browser.get(f"/{house.id}/{path}").status_code == 404
    for path in (f"invoices/{invoice.id}", f"invoices/{invoice.id}.pdf", "credit-notes/x.pdf"):
        assert browser.get(f"/{stranger.id}/{path}").status_code == 404


def test_a_hostile_name_is_text(house, used):
    house.organization.name = "<script>alert(1)</script>"
    house.organization.save()
    issued = render_to_string(
        "console/invoice_lines.html", {"groups": [{"title": house.organization.name, "rows": []}]}
    )
    assert "&lt;script&gt;" in issued
    assert "<script>" not in issued
