"""The operator's pages: who sells, tax, a month's close, and documents to look at."""

import pytest
from django.test import Client

from billing.credit.services.adjustments import write_off
from billing.invoicing.models import (
    BillingProfile,
    Close,
    CreditNote,
    Dispute,
    ExchangeRate,
    Invoice,
    LegalEntity,
    TaxRate,
)
from billing.invoicing.services.settling import settle_invoices
from control.accounts.models import User
from control.audit.models import AuditEvent
from serving.contract.money import CENT_NANOS
from tests.fixtures.invoicing import AFTER, OCTOBER, OPERATOR, finish_month, october, use_cents
from tests.fixtures.usage import make_customer

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root@example.com", "a-long-phrase"))
    return client


@pytest.fixture
def at_close(monkeypatch):
    """The operator looks when October's last day is closed."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: AFTER)


def entity_form(**changes: str) -> dict[str, str]:
    row = LegalEntity.objects.get()
    names = (
        "name", "address", "country", "region", "tax_ids", "email", "bank_details", "footer",
        "logo_svg", "tax_calculator", "number_prefix", "credit_note_prefix",
    )  # fmt: skip
    return {name: getattr(row, name) for name in names} | {"is_default": "on"} | changes


def test_the_legal_entity_is_set_up(operator):
    row = LegalEntity.objects.get()
    address = f"/admin/invoicing/legalentity/{row.pk}/change/"
    assert operator.get(address).status_code == 200
    changes = entity_form(name="Turbine Ltd", address="Dock 1\nBristol", country="gb")
    assert operator.post(address, changes).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.country) == ("Turbine Ltd", "GB")
    for wrong in (
        {"country": "XX"}, {"logo_svg": "<svg"}, {"tax_calculator": "nobody"}, {"name": ""},
        {"footer": "𓀀"},
    ):  # fmt: skip
        operator.post(address, entity_form(**wrong))
        row.refresh_from_db()
        assert (row.name, row.country, row.tax_calculator) == ("Turbine Ltd", "GB", "rate_table")


@pytest.mark.django_db(transaction=True)
def test_prefixes_of_documents_that_were_given_out_stay(operator, invoiced):
    row = LegalEntity.objects.get()
    address = f"/admin/invoicing/legalentity/{row.pk}/change/"
    operator.post(address, entity_form(number_prefix="X-"))
    row.refresh_from_db()
    assert row.number_prefix == "INV-"


def test_tax_rates_are_added_and_changed(operator):
    form = {
        "country": "de", "region": "", "name": "VAT", "rate_basis_points": "1900",
        "reverse_charge": "on", "starts_on": "2020-01-01",
    }  # fmt: skip
    assert operator.post("/admin/invoicing/taxrate/add/", form).status_code == 302
    row = TaxRate.objects.get()
    assert (row.country, row.rate_basis_points, row.reverse_charge) == ("DE", 1900, True)
    address = f"/admin/invoicing/taxrate/{row.pk}/change/"
    operator.post(address, {**form, "rate_basis_points": "1600"})
    operator.post(address, {**form, "rate_basis_points": "10001"})
    row.refresh_from_db()
    assert row.rate_basis_points == 1600
    assert b"16 %" in operator.get("/admin/invoicing/taxrate/").content


def test_exchange_rates_are_set(operator):
    form = {"currency": "EUR", "micros": "920000", "as_of": "2026-11-01"}
    assert operator.post("/admin/invoicing/exchangerate/add/", form).status_code == 302
    assert ExchangeRate.objects.get().micros == 920_000


def test_a_profile_is_kept_for_a_customer(operator):
    customer = make_customer("Acme")
    form = {
        "organization": customer.id, "legal_name": "Acme GmbH", "country": "DE",
        "tax_id": "DE136695976", "currency": "USD", "terms_days": "30", "paper": "a4",
    }  # fmt: skip
    assert operator.post("/admin/invoicing/billingprofile/add/", form).status_code == 302
    row = BillingProfile.objects.get()
    assert (row.legal_name, row.terms_days) == ("Acme GmbH", 30)
    address = f"/admin/invoicing/billingprofile/{customer.id}/change/"
    operator.post(address, {**form, "tax_id": "DE1"})
    row.refresh_from_db()
    assert row.tax_id == "DE136695976"


@pytest.mark.django_db(transaction=True)
def test_a_month_is_tried_and_closed(operator, cents_price, at_close):
    customer = make_customer("Acme")
    use_cents(customer, cents_price, 1000, october(30))
    page = "/admin/invoicing/close/month/"
    assert b"not closed" in operator.get(f"{page}?period=2026-10").content
    finish_month()
    shown = operator.get(f"{page}?period=2026-10&dry=1").content.decode()
    assert "Acme" in shown
    assert "$10.00" in shown
    assert not Invoice.objects.exists()
    answer = operator.post(page, {"period": "2026-10"}, follow=True)
    assert b"is being closed" in answer.content
    assert Close.objects.get().starts_on == OCTOBER.starts_on


@pytest.mark.parametrize("period", ["2026-12", "soon", ""])
def test_what_cannot_be_closed_is_said(operator, at_close, period):
    assert operator.get(f"/admin/invoicing/close/month/?period={period}").status_code == 200
    operator.post("/admin/invoicing/close/month/", {"period": period})
    assert not Close.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_invoice_is_looked_at_disputed_and_taken_back(operator, invoiced):
    address = f"/admin/invoicing/invoice/{invoiced.pk}"
    shown = operator.get(f"{address}/change/").content.decode()
    for words in ("INV-000001", "$10.00", "by-the-cent:bf16"):
        assert words in shown
    assert operator.get(f"{address}/pdf/").content.startswith(b"%PDF-")
    assert operator.get("/admin/invoicing/invoice/").status_code == 200
    deed = "/admin/invoicing/invoice/{}/{}/"
    operator.post(deed.format(invoiced.pk, "dispute"), {"reason": "not theirs"})
    assert Dispute.objects.get().closed_at is None
    operator.post(deed.format(invoiced.pk, "end_dispute"), {"reason": "it is"})
    assert Dispute.objects.get().closed_at is not None
    assert AuditEvent.objects.get(action="invoice.end_dispute").details["reason"] == "it is"
    for _ in range(2):
        operator.post(deed.format(invoiced.pk, "take_back"), {"reason": "a mistake"})
    note = CreditNote.objects.get()
    assert note.total_cents == 1000
    shown = operator.get(f"/admin/invoicing/creditnote/{note.pk}/change/").content
    assert b"CN-000001" in shown
    assert operator.get(f"/admin/invoicing/creditnote/{note.pk}/pdf/").content.startswith(b"%PDF-")


@pytest.mark.django_db(transaction=True)
def test_the_list_shows_an_invoice_that_was_written_off(operator, invoiced):
    write_off(
        organization_id=invoiced.organization_id, amount_nanos=1000 * CENT_NANOS,
        idempotency_key="w", actor=OPERATOR, reason="gone", now=AFTER,
    )  # fmt: skip
    settle_invoices(organization_id=invoiced.organization_id, now=AFTER)
    shown = operator.get("/admin/invoicing/invoice/").content.decode()
    assert "Written off" in shown


@pytest.mark.django_db(transaction=True)
def test_only_operators_see_the_pages(org, invoiced):
    browser = org.browser()
    for path in ("close/month", f"invoice/{invoiced.pk}/pdf", "legalentity", "taxrate"):
        assert browser.get(f"/admin/invoicing/{path}/").status_code in {302, 403}
