"""The FOCUS export: exact decimals that add up to the rollups, of whoever was asked for."""

import csv
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Sum
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from billing.economics.focus import COLUMNS, Days, decimal, focus_csv
from billing.following.models import HourRollup
from billing.metering.ingest import ingest
from control.accounts.models import User
from control.pricing.models import Price, PriceBook
from tests.fixtures.usage import METERS, NOW, Customer, make_batch, make_event, roll_up

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
TODAY = NOW.date()
YESTERDAY = TODAY - timedelta(days=1)


@pytest.fixture
def used(customer: Customer, outsider: Customer, price: Price) -> None:
    """Two days of usage, some of it waived."""
    events = [
        make_event(customer, price, input_tokens=7, cached_input_tokens=3, output_tokens=1),
        make_event(customer, price),
        make_event(customer, price, outcome="engine_failed"),
        make_event(customer, price, received_at=NOW - timedelta(days=1)),
        make_event(outsider, price, cached_input_tokens=0, output_tokens=0),
    ]
    assert ingest(make_batch(events), now=NOW).accepted == len(events)
    roll_up()


def export(first: Any = YESTERDAY, last: Any = TODAY, whose: str | None = None) -> list[Any]:
    text = b"".join(focus_csv(Days(first, last, whose))).decode()
    rows = list(csv.DictReader(StringIO(text)))
    assert text.split("\r\n", 1)[0] == ",".join(COLUMNS)
    return rows


def added(rows: list[Any], column: str) -> Decimal:
    return sum((Decimal(row[column] or 0) for row in rows), Decimal())


@pytest.mark.unit
@given(st.integers(-(10**30), 10**30), st.sampled_from([1, 6, 9, 15]))
def test_decimals_are_exact_and_plain(whole: int, places: int) -> None:
    text = decimal(whole, places)
    assert int(text.replace(".", "") + "0" * (places - len(text.partition(".")[2]))) == whole
    assert set(text) <= set("-0123456789.")


@pytest.mark.usefixtures("used")
def test_costs_are_the_rollups_to_the_nano() -> None:
    rows = export()
    nanos = ("input_nanos", "cached_input_nanos", "output_nanos", "waived_nanos")
    sums = HourRollup.objects.aggregate(**{name: Sum(name) for name in nanos})
    for meter in ("input", "cached_input", "output"):
        mine = [row for row in rows if row["x_Meter"] == meter]
        assert added(mine, "BilledCost") * 10**9 == sums[f"{meter}_nanos"]
        assert added(mine, "EffectiveCost") * 10**9 == sums[f"{meter}_nanos"]
    assert added(rows, "x_WaivedCost") * 10**9 == sums["waived_nanos"] == 132_000
    tokens = HourRollup.objects.aggregate(i=Sum("input_tokens"), o=Sum("output_tokens"))
    assert added(rows, "ConsumedQuantity") == tokens["i"] + tokens["o"]


@pytest.mark.usefixtures("used")
def test_unit_price_times_quantity_is_the_cost() -> None:
    for row in export():
        if row["ChargeCategory"] == "Usage":
            quantity = Decimal(row["PricingQuantity"])
            assert quantity * 10**6 == Decimal(row["ConsumedQuantity"]) > 0
            assert Decimal(row["ContractedUnitPrice"]) * quantity == Decimal(row["ContractedCost"])
            assert Decimal(row["ListUnitPrice"]) * quantity == Decimal(row["ListCost"])
            assert row["SkuPriceId"].startswith(row["SkuId"])


@pytest.mark.usefixtures("used")
def test_one_row_as_an_accountant_reads_it(customer: Customer, price: Price) -> None:
    row = next(row for row in export(YESTERDAY, YESTERDAY) if row["x_Meter"] == "input")
    expected = {
        "BilledCost": "0.00009", "BillingCurrency": "USD", "BillingAccountName": "Acme",
        "BillingPeriodStart": "2026-11-01T00:00:00Z", "BillingPeriodEnd": "2026-12-01T00:00:00Z",
        "ChargePeriodStart": "2026-11-20T00:00:00Z", "ChargePeriodEnd": "2026-11-21T00:00:00Z",
        "ChargeCategory": "Usage", "ChargeDescription": "penstock-demo:bf16 default: input tokens",
        "ConsumedQuantity": "600", "ConsumedUnit": "Tokens", "PricingQuantity": "0.0006",
        "PricingUnit": "1000000 Tokens", "ListUnitPrice": "0.15", "ContractedUnitPrice": "0.15",
        "SubAccountId": customer.project.id, "ResourceId": customer.key.id,
        "ServiceCategory": "AI and Machine Learning", "x_PriceId": price.id,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected


def test_a_contract_shows_the_list_price_beside_it(customer: Customer, price: Price) -> None:
    book = PriceBook.objects.create(name="Contract", organization=customer.organization)
    halves = {name: value // 2 for name, value in vars(METERS).items()}
    own = Price.objects.create(book=book, variant=price.variant, **halves)
    then = NOW - timedelta(days=5)
    PriceBook.objects.filter(id=book.id).update(effective_at=then, published_at=then)
    ingest(make_batch([make_event(customer, price, price_id=own.id)]), now=NOW)
    roll_up()
    rows = export()
    assert added(rows, "BilledCost") * 2 == added(rows, "ListCost") == Decimal("0.000132")
    assert {row["SkuPriceId"] for row in rows} == {
        f"{price.variant_id}:{meter}:default:0" for meter in ("input", "cached_input", "output")
    }


@pytest.mark.usefixtures("used")
def test_one_organization_sees_nothing_of_another(customer: Customer, outsider: Customer) -> None:
    for one in (customer, outsider):
        assert {row["BillingAccountId"] for row in export(whose=one.id)} == {one.id}
    assert {row["BillingAccountId"] for row in export()} == {customer.id, outsider.id}


@pytest.mark.usefixtures("used")
def test_names_are_no_formulas(customer: Customer) -> None:
    type(customer.organization).objects.filter(id=customer.id).update(name="=1+1")
    names = {row["BillingAccountName"] for row in export(whose=customer.id)}
    assert names == {"'=1+1"}


@pytest.mark.usefixtures("used")
def test_the_command_writes_the_same(customer: Customer) -> None:
    days = {"first": YESTERDAY, "last": TODAY}
    out = StringIO()
    call_command("export_focus", organization=customer.id, stdout=out, **days)
    assert out.getvalue().encode() == b"".join(focus_csv(Days(YESTERDAY, TODAY, customer.id)))
    with pytest.raises(CommandError, match="no organization org_none"):
        call_command("export_focus", organization="org_none", **days)
    with pytest.raises(CommandError, match="ends before it begins"):
        call_command("export_focus", first=TODAY, last=YESTERDAY)


# Pages

PAGE = "/admin/economics/costexport/"


def log_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.usefixtures("used")
def test_an_operator_downloads_it(customer: Customer) -> None:
    operator = log_in(User.objects.create_superuser("operator@penstock.test"))
    assert "Download" in operator.get(PAGE).content.decode()
    asked = {"first": str(YESTERDAY), "last": str(TODAY), "organization": customer.id}
    reply = operator.get(PAGE, asked)
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    whole = b"".join(focus_csv(Days(YESTERDAY, TODAY, customer.id)))
    assert b"".join(reply.streaming_content) == whole
    wrong = operator.get(PAGE, {"first": str(TODAY), "last": str(YESTERDAY)})
    assert "ends before it begins" in wrong.content.decode()


def test_nobody_else_does(customer: Customer) -> None:
    for client in (Client(), log_in(User.objects.create_user("member@acme.test"))):
        assert client.get(PAGE).status_code == 302
