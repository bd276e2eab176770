"""Requests as files: every one once, exact, harmless to spreadsheets, one organization's own."""

import csv
import json
from datetime import timedelta

import pytest

from billing.reading.exports import COLUMNS, csv_pages, jsonl_pages
from billing.reading.filters import UsageFilters
from tests.fixtures.usage import NOW, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
START = NOW - timedelta(days=1)


@pytest.fixture
def events(customer, outsider, price, book):
    moments = [NOW - timedelta(minutes=n) for n in (3, 2, 1)]
    mine = [make_event(customer, price, received_at=at) for at in moments]
    book(*mine, make_event(outsider, price))
    return mine


def read_csv(*asked, **filters):
    text = b"".join(csv_pages(*asked, **filters)).decode()
    return list(csv.DictReader(text.splitlines()))


def read_jsonl(*asked, **filters):
    text = b"".join(jsonl_pages(*asked, **filters)).decode()
    return [json.loads(line) for line in text.splitlines()]


def test_both_files_have_every_request_oldest_first(customer, events):
    asked = (customer.organization, START, NOW)
    for found in (read_csv(*asked), read_jsonl(*asked)):
        assert [one["request_id"] for one in found] == [event.event_id for event in events]
        assert list(found[0]) == list(COLUMNS)


def test_figures_are_exact_and_input_includes_its_cached_part(customer, price, events):
    line = read_jsonl(customer.organization, START, NOW)[0]
    assert (line["input_tokens"], line["cached_input_tokens"]) == (1000, 400)
    meters = ("input_nanos", "cached_input_nanos", "output_nanos")
    assert sum(line[meter] for meter in meters) == line["charged_nanos"] == 132_000
    assert line["charged_usd"] == "0.000132"
    assert (line["model"], line["price_id"]) == ("penstock-demo:bf16", price.id)
    assert line["received_at"] == "2026-11-21T12:27:00.000Z"


def test_a_file_is_of_its_interval(customer, events):
    asked = (customer.organization, NOW - timedelta(minutes=2), NOW - timedelta(minutes=1))
    assert [one["request_id"] for one in read_csv(*asked)] == [events[1].event_id]


def test_a_filter_leaves_the_rest_out(customer, events):
    only = UsageFilters(tiers=("batch",))
    assert read_jsonl(customer.organization, START, NOW, filters=only) == []
    assert b"".join(csv_pages(customer.organization, START, NOW, filters=only)).count(b"\n") == 1


def test_an_outsiders_file_holds_their_own(customer, outsider, events):
    theirs = UsageFilters(key_ids=(customer.key.id,))
    assert read_jsonl(outsider.organization, START, NOW, filters=theirs) == []
    assert len(read_csv(outsider.organization, START, NOW)) == 1
