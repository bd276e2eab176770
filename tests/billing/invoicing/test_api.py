"""Invoices and billing profiles over the management API: roles, outsiders, and what is refused."""

import copy
from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from billing.invoicing.models import BillingProfile, ExchangeRate, Invoice
from billing.invoicing.services.notes import issue_credit_note
from control.api_keys.models import Scope
from control.permissions import Role
from tests.fixtures.invoicing import AFTER, OPERATOR, InvoicedMonth, make_invoiced_month
from tests.fixtures.kept import kept
from tests.fixtures.organizations import SeededOrganization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
MONEY = (Role.OWNER, Role.ADMIN, Role.BILLING)
OTHERS = (Role.DEVELOPER, Role.VIEWER)


@pytest.fixture(scope="module")
def month(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[InvoicedMonth]:
    yield from kept(django_db_blocker, make_invoiced_month)


@pytest.fixture
def org(month: InvoicedMonth, db: None) -> SeededOrganization:
    return copy.deepcopy(month.org)


@pytest.fixture
def stranger(month: InvoicedMonth, db: None) -> SeededOrganization:
    return copy.deepcopy(month.stranger)


@pytest.fixture
def invoiced(month: InvoicedMonth, db: None) -> Invoice:
    return copy.deepcopy(month.invoice)


def test_invoices_are_listed_shown_and_printed(org, invoiced):
    browser = org.browser()
    (row,) = browser.get("invoices").json()["data"]
    assert (row["number"], row["period"], row["total_cents"]) == ("INV-000001", "2026-10", 1000)
    assert (row["status"], row["open_cents"]) == ("overdue", 1000) or row["status"] == "open"
    whole = browser.get(f"invoices/{invoiced.id}").json()
    (line,) = whole["lines"]
    assert (line["meter"], line["quantity_tokens"], line["amount_cents"]) == ("output", 1000, 1000)
    assert line["variant"] == "by-the-cent:bf16"
    answer = browser.get(f"invoices/{invoiced.id}/pdf")
    assert answer["Content-Type"] == "application/pdf"
    assert answer.content.startswith(b"%PDF-")
    assert browser.get(f"invoices/{invoiced.id}/pdf").content == answer.content


def test_a_key_that_may_manage_sees_its_organizations_own(org, stranger, invoiced):
    for owner, status, count in ((org, 200, 1), (stranger, 404, 0)):
        _, secret = owner.mint(scopes=[Scope.MANAGE])
        headers = {"Authorization": f"Bearer {secret}"}
        browser = owner.browser()
        listed = browser.get("invoices", headers=headers)
        assert len(listed.json()["data"]) == count
        shown = browser.get(f"invoices/{invoiced.id}", headers=headers)
        assert shown.status_code == status


@pytest.mark.parametrize("role", [*MONEY, *OTHERS])
def test_who_may_see_money_may_see_invoices(org, invoiced, role):
    wanted = 200 if role in MONEY else 403
    browser = org.browser(role)
    for path in ("invoices", f"invoices/{invoiced.id}", f"invoices/{invoiced.id}/pdf"):
        assert browser.get(path).status_code == wanted
    assert browser.get("billing-profile").status_code == wanted
    patched = browser.patch("billing-profile", {"city": "Hamburg"}, content_type="application/json")
    assert patched.status_code == wanted


def test_an_outsider_learns_nothing(org, stranger, invoiced):
    outsider = stranger.browser()
    assert outsider.get("invoices").json()["data"] == []
    for path in (f"invoices/{invoiced.id}", f"invoices/{invoiced.id}/pdf"):
        found, missing = (outsider.get(one) for one in (path, path.replace(invoiced.id, "inv_x")))
        assert found.status_code == missing.status_code == 404
        assert found.json() == missing.json()
    base = f"/api/v1/organizations/{org.id}"
    for path in ("invoices", f"invoices/{invoiced.id}", "billing-profile"):
        assert outsider.get(f"{base}/{path}").status_code == 404
    answer = outsider.patch(
        f"{base}/billing-profile", {"city": "x"}, content_type="application/json"
    )
    assert answer.status_code == 404
    assert not BillingProfile.objects.exists()


def test_a_credit_note_is_on_its_invoice(org, invoiced):
    issue_credit_note(
        invoice_id=invoiced.id, idempotency_key="1", actor=OPERATOR, reason="a mistake", now=AFTER
    )
    whole = org.browser().get(f"invoices/{invoiced.id}").json()
    assert whole["status"] == "void"
    assert [note["total_cents"] for note in whole["credit_notes"]] == [1000]


def patch(org, **changes):
    return org.browser().patch("billing-profile", changes, content_type="application/json")


def test_a_profile_is_changed_field_by_field(org):
    ExchangeRate.objects.create(currency="EUR", micros=920_000, as_of=AFTER.date())
    assert org.browser().get("billing-profile").json()["terms_days"] == 14
    assert patch(org, country="de", tax_id="DE 136 695 976").status_code == 200
    answer = patch(org, legal_name="Acme GmbH", currency="EUR", recipients=["a@acme.example"])
    body = answer.json()
    assert (body["country"], body["tax_id"], body["currency"]) == ("DE", "DE136695976", "EUR")
    assert (body["legal_name"], body["collection"]) == ("Acme GmbH", "prepaid")
    profile = BillingProfile.objects.get()
    assert profile.recipients == ["a@acme.example"]


@pytest.mark.parametrize(
    "changes",
    [
        {"country": "XX"},
        {"country": "DE", "tax_id": "DE136695977"},  # a wrong check digit
        {"country": "GB", "tax_id": "GB000"},
        {"country": "CH", "tax_id": "CHE-107.787.578 IVA"},
        {"country": "JP", "tax_id": "T123456789012"},  # 12 digits
        {"country": "JP", "tax_id": "7000012050003"},
        {"country": "AU", "tax_id": "83 914 571 674"},
        {"country": "US", "tax_id": "1234"},
        {"country": "AQ", "tax_id": "<b>"},
        {"currency": "XXX"},
        {"currency": "EUR"},  # nobody set a rate
        {"recipients": ["nobody"]},
        {"recipients": ["a@b.example"] * 21},
        {"legal_name": "a\x00b"},
        {"legal_name": "x" * 201},
        {"legal_name": "Papyri 𓀀"},
        {"city": "བོད"},
        {"paper": "a5"},
        {"terms_days": 90},
        {"organization_id": "org_other"},
        {"balance": 5},
    ],
)
def test_senseless_changes_are_refused_and_change_nothing(org, changes):
    answer = patch(org, **changes)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"]
    profile = BillingProfile.objects.first()
    assert profile is None or (profile.country, profile.tax_id) == ("", "")


@pytest.mark.parametrize(
    ("country", "text", "written"),
    [
        ("DE", "136695976", "DE136695976"),
        ("FR", "fr 40 303 265 045", "FR40303265045"),
        ("GR", "EL 094259216", "EL094259216"),
        ("GR", "GR094259216", "EL094259216"),
        ("GR", "094259216", "EL094259216"),
        ("GB", "gb980780684", "GB 980 7806 84"),
        ("GB", "980780684", "980 7806 84"),
        ("GB", "XI 980780684", "XI 980 7806 84"),  # Northern Ireland
        ("CH", "CHE107787577IVA", "CHE-107.787.577 IVA"),
        ("NO", "995525828MVA", "NO 995 525 828 MVA"),
        ("IS", "IS 00621", "IS00621"),
        ("JP", "T7000012050002", "T7000012050002"),
        ("JP", "\uff347-0000-1205-0002", "T7000012050002"),
        ("JP", "7000012050002", "7000012050002"),
        ("KR", "1168200276", "116-82-00276"),
        ("BR", "16727230000197", "16.727.230/0001-97"),
        ("AU", "83914571673", "83 914 571 673"),
        ("IN", "27aapfu0939f1zv", "27AAPFU0939F1ZV"),
        ("MX", "GODE 561231 GR8", "GODE561231GR8"),
        ("CA", "12302 6635 RC 0001", "123026635RC0001"),
        ("US", "123456789", "12-3456789"),
        ("AQ", "U-132950-X", "U-132950-X"),  # its form is not known: kept as it is
        ("", "U-132950-X", "U-132950-X"),
    ],
)
def test_tax_ids_are_kept_as_their_country_writes_them(org, country, text, written):
    assert patch(org, country=country, tax_id=text).json()["tax_id"] == written
    assert patch(org, country=country).json()["tax_id"] == written


def test_a_new_country_checks_the_tax_id_that_is_there(org):
    assert patch(org, country="US", tax_id="12-3456789").status_code == 200
    assert patch(org, country="FR").status_code == 400
    assert patch(org, country="FR", tax_id="").status_code == 200
