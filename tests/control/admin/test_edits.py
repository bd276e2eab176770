"""Every form of the admin that changes a row carries the version that it was made from; and a
model that has variants is saved."""

from datetime import date
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.test import Client

from billing.invoicing.models import BillingProfile, ExchangeRate, LegalEntity, TaxRate
from control.accounts.models import User
from control.admin import base
from control.admin.base import row_url
from control.api import versions
from control.catalog.models import Model
from control.drafts.origin import FIELD
from control.forms import VERSION
from control.limits.models import RateLimitOverride, UsageTierModelLimit
from control.pricing import services as pricing
from control.pricing.models import Price
from tests.fixtures.corpus import quarter
from tests.fixtures.database import let_transaction_last
from tests.fixtures.furnished import furnish
from tests.fixtures.html_forms import form_to
from tests.fixtures.operations import ADMIN
from tests.fixtures.operator_tokens import METERS, bearer_client, make_operator, make_token
from tests.fixtures.organizations import (
    OPERATOR,
    SeededOrganization,
    make_model,
    make_organization,
    make_variant,
)
from tests.fixtures.paying import in_place_of_stripe

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
EDITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "catalog.model": ({"name": "Alpha"}, {"description": "Mine"}),
    "catalog.variant": ({"size_bytes": 7}, {"capabilities": "tools"}),
    "catalog.deployment": ({"hourly_cost_nanos": "$2.50"}, {"engine_arguments": "--a\n--b"}),
    "catalog.fleet": ({"region": "eu-west"}, {"name": "Mine"}),
    "pricing.pricebook": ({"prices-0-input_nanos": "$0.25"}, {"name": "Mine"}),
    "limits.usagetier": ({"service_tiers": ["default"]}, {"name": "Mine"}),
    "limits.ratelimitoverride": ({"requests_per_minute": 7}, {"concurrent_requests": 9}),
    "organizations.organization": ({"name": "Alpha"}, {"allowed_regions": "eu-west"}),
    "operators.operator": ({"operator_role": "viewer"}, {"operator_role": "catalog"}),
    "invoicing.legalentity": ({"name": "Alpha"}, {"footer": "Mine"}),
    "invoicing.billingprofile": ({"city": "Bonn"}, {"recipients": "ada@acme.example"}),
    "invoicing.taxrate": ({"rate_basis_points": 700}, {"name": "Mine"}),
    "invoicing.exchangerate": ({"micros": 930_000}, {"as_of": "2026-02-02"}),
    "collection.scheduledstep": ({"days": 77}, {"days": 78}),
    "collection.settings": ({"min_cents": 77}, {"hour": 7}),
}
"""What an earlier tab changes of a row, and what a later one does."""


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Client:
    """An owner's browser, with a row of most models."""
    let_transaction_last()
    monkeypatch.setattr(settings, "CONFIG", settings.CONFIG)
    with in_place_of_stripe(settings, monkeypatch) as double:
        org = make_organization()
        ids = furnish(org, double)
    make_operator("support")
    UsageTierModelLimit.objects.create(tier_id=ids["tier_id"], model_id=ids["model_id"])
    RateLimitOverride.objects.create(organization=org.organization, requests_per_minute=5)
    BillingProfile.objects.get_or_create(organization=org.organization)
    LegalEntity.objects.get_or_create(name="Penstock", defaults={"country": "DE"})
    LegalEntity.objects.update(address="Street 1")
    TaxRate.objects.create(country="DE", name="VAT", rate_basis_points=1900)
    ExchangeRate.objects.create(currency="EUR", micros=920_000, as_of=date(2026, 1, 1))
    client = Client()
    client.force_login(User.objects.create_superuser("owner@penstock.example"))
    return client


def rows() -> dict[str, Any]:
    """Return a row of each model that the admin has a page of."""
    found = {}
    for model in admin.site._registry:
        queryset = model._default_manager.all()
        if model is Price.book.field.related_model:
            queryset = queryset.filter(published_at=None)
        if model._meta.label_lower == "operators.operator":
            queryset = queryset.filter(operator_role="support")
        if row := queryset.first():
            found[model._meta.label_lower] = row
    return found


def url_of(row: Any) -> str:
    label = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
    return row_url(label, row.pk)


def held(client: Client, row: Any) -> dict[str, list[str]]:
    url = url_of(row)
    return form_to(client.get(url).content, url).values


def as_lists(fields: dict[str, Any]) -> dict[str, list[str]]:
    return {
        name: value if isinstance(value, list) else [str(value)] for name, value in fields.items()
    }


def test_every_form_that_saves_has_its_version(operator: Client) -> None:
    pages = {label: operator.get(url_of(row)).content for label, row in rows().items()}
    saved = {label for label, page in pages.items() if b'name="_save"' in page}
    assert saved == EDITS.keys()
    assert all(VERSION.encode() in pages[label] for label in saved)


@pytest.mark.parametrize("label", quarter(EDITS))
def test_the_older_of_two_tabs_is_told_and_loses_nothing(operator: Client, label: str) -> None:
    row = rows()[label]
    url, older = url_of(row), held(operator, row)
    assert VERSION in older, label
    theirs, mine = map(as_lists, EDITS[label])
    first = operator.post(url, older | theirs)
    assert first.status_code == 302, (label, errors(first))
    saved = held(operator, row)
    assert {name: saved[name] for name in theirs} == theirs, label
    refused = operator.post(url, older | mine)
    page = refused.content.decode()
    assert (refused.status_code, page.count("Now: ")) == (409, 1), label
    assert visible(held(operator, row)) == visible(saved), label
    shown = form_to(refused.content, url).values
    assert visible(shown) == visible(saved | mine), label
    again = operator.post(url, shown)
    assert again.status_code == 302, (label, errors(again))
    now = held(operator, row)
    wanted = theirs | mine
    assert {name: now[name] for name in wanted} == wanted, label


def visible(values: dict[str, list[str]]) -> dict[str, list[str]]:
    return {
        name: value
        for name, value in values.items()
        if not name.endswith((FIELD, VERSION)) and not name.startswith("initial-")
    }


def errors(reply: Any) -> Any:
    if reply.context is None:
        return reply.content
    return reply.context["adminform"].form.errors, [
        (each.formset.errors, each.formset.non_form_errors())
        for each in reply.context["inline_admin_formsets"]
    ]


@pytest.mark.parametrize("typed", [{}, {"prices-0-output_nanos": "soon"}])
def test_a_price_that_changed_is_removed_only_knowingly(
    operator: Client, typed: dict[str, str]
) -> None:
    book = rows()["pricing.pricebook"]
    url, older = url_of(book), held(operator, book)
    theirs = as_lists({"prices-0-input_nanos": "$0.25"})
    assert operator.post(url, older | theirs).status_code == 302
    refused = operator.post(url, older | typed | {"prices-0-DELETE": "on"})
    assert (refused.status_code, book.prices.count()) == (409, 1)
    page = refused.content.decode()
    assert "Now: $0.25. It was: " in page
    assert "A row that you removed was changed" in page
    again = operator.post(url, form_to(refused.content, url).values)
    assert (again.status_code, book.prices.count()) == (302, 0), errors(again)


def test_edits_of_a_contract_wait_for_each_other_wherever_they_are_made(
    client: Client, org: SeededOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The admin's form and table, the change and the price by API lock the same id."""
    book = pricing.draft_book(actor=OPERATOR, name="Draft", organization=org.organization)
    variant = make_variant(make_model())
    pricing.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
    client.force_login(User.objects.create_superuser("owner@penstock.example"))
    script, url = bearer_client(make_token(make_operator())[1]), f"{ADMIN}/price-books/{book.id}"
    price = {"variant_id": variant.id, **METERS}
    edits = [
        lambda: client.post(url_of(book), held(client, book) | {"name": "New"}),
        lambda: client.post(url_of(book), held(client, book) | {"prices-0-output_nanos": "0.61"}),
        lambda: script.patch(url, {"name": "Newer"}, content_type="application/json"),
        lambda: script.post(f"{url}/prices", price, content_type="application/json"),
    ]
    for edit in edits:
        locked: set[str] = set()
        for module in (base, versions, pricing):
            monkeypatch.setattr(module, "lock_edits", locked.add)
        assert edit().status_code in (200, 302)
        assert locked == {book.id}


def test_a_model_that_has_variants_is_saved(operator: Client) -> None:
    model = Model.objects.filter(variants__isnull=False).first()
    for changes in ({"name": "Renamed"}, {"description": "New"}, {}):
        reply = operator.post(url_of(model), held(operator, model) | changes)
        assert reply.status_code == 302, errors(reply)
    model.refresh_from_db()
    assert (model.name, model.description) == ("Renamed", "New")
