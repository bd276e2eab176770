"""Usage: the CSV file is the table, the table is the chart, and the URL is the question."""

import csv
import json
import re
from datetime import date, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from control.api import streaming
from control.api_keys.models import ApiKey
from control.api_keys.services import create_api_key
from control.pricing.models import Price
from tests.fixtures.console import book, make_request
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address
from web.console.usage.query import DAYS_MAX, UsageQuery, parse_query

TODAY = date(2026, 11, 21)


@pytest.fixture
def two_keys(org: SeededOrganization, key: ApiKey, prices: dict[str, Price]) -> list[ApiKey]:
    other = create_api_key(actor=org.actor, project=org.project, name="=Batch")[0]
    now = timezone.now()
    events = [make_request(k, prices["bf16"], now - timedelta(hours=1)) for k in (key, key, other)]
    book(*events, now=now)
    return [key, other]


def cells(page: str) -> list[list[str]]:
    """Return the table's rows as the text of their cells."""
    body = re.search(r"<tbody>(.*?)</tbody>", page, re.S)
    assert body is not None
    rows = re.findall(r"<tr>(.*?)</tr>", body[1], re.S)
    found = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in rows]
    return [[re.sub(r"<[^>]+>", "", cell).strip() for cell in row] for row in found]


@pytest.mark.integration
@pytest.mark.parametrize("by", ["day", "hour"])
@pytest.mark.parametrize("group", ["", "key", "model", "variant", "project"])
def test_the_file_has_the_tables_rows_in_the_same_order(
    member: Client, org: SeededOrganization, two_keys: list[ApiKey], by: str, group: str
) -> None:
    asked = {"by": by, "group": group}
    page = member.get(address(org.organization, "usage"), asked).content.decode()
    file = member.get(address(org.organization, "usage_csv"), asked).content.decode()
    lines = list(csv.DictReader(file.splitlines()))
    shown = [[row[0][:10], *row[-5:-1]] for row in cells(page)]
    figures = ("requests", "input_tokens", "cached_input_tokens", "output_tokens")
    told = [
        [line["begins_at_utc"][:10], *(f"{int(line[name]):,}" for name in figures)]
        for line in lines
    ]
    assert shown == told
    assert sum(int(line["charged_nanos"]) for line in lines) == 3 * 132_000


@pytest.mark.integration
def test_the_chart_adds_up_to_the_table(
    member: Client, org: SeededOrganization, two_keys: list[ApiKey]
) -> None:
    page = member.get(address(org.organization, "usage")).content.decode()
    found = re.search(r'<script id="usage-chart"[^>]*>(.*?)</script>', page, re.S)
    assert found is not None
    series = {one["label"]: sum(one["values"]) for one in json.loads(found[1])["series"]}
    assert series == {"Uncached input": 1800, "Cached input": 1200, "Output": 60}


@pytest.mark.integration
def test_the_overview_adds_input_and_output_of_a_model(
    member: Client, org: SeededOrganization, key: ApiKey, prices: dict[str, Price]
) -> None:
    now = timezone.now()
    book(make_request(key, prices["bf16"], now), now=now)
    page = member.get(address(org.organization, "overview")).content.decode()
    assert '<td class="num">1</td><td class="num"><span title="1,020">1,020</span></td>' in page


@pytest.mark.integration
def test_a_filter_leaves_the_rest_out(
    member: Client, org: SeededOrganization, two_keys: list[ApiKey]
) -> None:
    asked = {"key": two_keys[1].id, "group": "key"}
    file = member.get(address(org.organization, "usage_csv"), asked).content.decode()
    assert [line["requests"] for line in csv.DictReader(file.splitlines())] == ["1"]


@pytest.mark.integration
def test_a_name_is_no_formula_in_the_file(
    member: Client, org: SeededOrganization, two_keys: list[ApiKey]
) -> None:
    asked = {"group": "key"}
    file = member.get(address(org.organization, "usage_csv"), asked).content.decode()
    names = {line["group_name"] for line in csv.DictReader(file.splitlines())}
    assert names == {"Backend", "'=Batch"}


@pytest.mark.unit
def test_the_question_survives_its_url() -> None:
    asked = UsageQuery(TODAY - timedelta(days=3), TODAY, "hour", "key", "cost", "m", "k", "p")
    assert parse_query(asked.parameters(), TODAY) == asked


@pytest.mark.unit
@pytest.mark.parametrize(
    "parameters",
    [
        {"from": "yesterday", "to": "2026-13-40", "by": "minute", "group": "salt"},
        {"from": "2030-01-01", "to": "2031-01-01"},
        {"from": "1999-01-01"},
        {"to": "0001-01-01"},
        {"from": "0001-01-01", "to": "9999-12-31"},
    ],
)
def test_nonsense_falls_back_to_the_usual(parameters: dict[str, str]) -> None:
    asked = parse_query(parameters, TODAY)
    assert asked.by == "day"
    assert asked.first <= asked.last <= TODAY
    assert (asked.last - asked.first).days < DAYS_MAX["day"]


@pytest.mark.integration
def test_too_many_downloads_are_a_page_that_says_so(
    member: Client, org: SeededOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "CALLER_EXPORTS_MAX", 0)
    for section in ("usage_csv", "requests_csv"):
        reply = member.get(address(org.organization, section))
        assert reply.status_code == 429 and int(reply.headers["retry-after"]) > 0
        assert "Too many downloads" in reply.text
