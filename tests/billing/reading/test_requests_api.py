"""Single requests and files in the management API: exact, whole, and one organization's own."""

import csv
import json
import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.reading import selectors
from control.catalog.models import Model
from tests.billing.reading.test_api import COSTS, DAY, TODAY, USAGE, get, person_of
from tests.fixtures.usage import NOW, add_key, make_event, make_price

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
EVER = {"start_time": 0}


def body_of(client, path, **query):
    answer = client.get(path, query, headers={"accept": "text/csv"})
    assert answer.status_code == 200, answer.content
    return b"".join(answer.streaming_content).decode()


def lines_of(client, path, **query):
    text = body_of(client, path, **query)
    if query["format"] == "csv":
        return list(csv.DictReader(text.splitlines()))
    return [json.loads(line) for line in text.splitlines()]


def test_a_receipt_shows_tokens_times_price_for_each_meter(customer, price, book):
    """600 x 150 + 400 x 75 + 20 x 600 = 90,000 + 30,000 + 12,000 nanos."""
    event = make_event(customer, price, client_request_id="mine-1")
    book(event)
    body = person_of(customer).get(f"requests/{event.event_id}").json()
    assert (body["object"], body["id"]) == ("request", event.event_id)
    assert body["usage"] == {
        "input_tokens": 1000, "cached_input_tokens": 400, "output_tokens": 20,
        "reasoning_tokens": 0,
    }  # fmt: skip
    assert [(one["meter"], one["tokens"], one["amount_nanos"]) for one in body["lines"]] == [
        ("input", 600, 90_000), ("cached_input", 400, 30_000), ("output", 20, 12_000)
    ]  # fmt: skip
    for line in body["lines"]:
        assert line["tokens"] * line["nanos_per_million_tokens"] == line["amount_nanos"] * 10**6
    assert (body["charged_nanos"], body["charged_usd"]) == (132_000, "0.000132")
    assert (body["price"]["id"], body["price"]["book"]) == (price.id, "List")
    assert (body["model"], body["client_request_id"]) == ("penstock-demo:bf16", "mine-1")
    assert body["timings"] == {
        "queue_seconds": 0.0, "ttft_seconds": 0.02, "total_seconds": 0.4
    }  # fmt: skip


def test_a_waived_request_has_a_receipt_too(customer, price, book):
    event = make_event(customer, price, outcome="engine_failed")
    book(event)
    body = person_of(customer).get(f"requests/{event.event_id}").json()
    assert (body["charged_nanos"], body["waived_nanos"]) == (0, 132_000)


def test_a_receipt_of_nothing_is_missing(customer):
    client = person_of(customer)
    for name in (uuid.uuid4(), "no-id"):
        assert client.get(f"requests/{name}").status_code == 404


@pytest.fixture
def busy(customer, outsider, price, book):
    """Three requests in two days of two keys of the customer's, and one of the outsider's."""
    events = [
        make_event(customer, price, received_at=NOW - timedelta(days=1)),
        make_event(customer, price),
        make_event(add_key(customer), price, input_tokens=2000, cached_input_tokens=0),
    ]
    book(*events, make_event(outsider, price))
    return events


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_requests_of_any_period_come_as_files(busy, customer, ending):
    found = lines_of(person_of(customer), "requests", format=ending, **EVER)
    assert [one["request_id"] for one in found] == sorted(event.event_id for event in busy)
    mine = {"api_key_ids": customer.key.id}
    found = lines_of(person_of(customer, "viewer"), "requests", format=ending, **EVER, **mine)
    assert len(found) == 2


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_costs_of_any_period_come_as_files_by_day_and_group(busy, customer, ending):
    groups = ["project_id", "api_key_id", "model", "service_tier"]
    client = person_of(customer)
    found = lines_of(client, "costs", format=ending, **EVER, group_by=groups)
    assert [one["day"] for one in found] == ["2026-11-20", "2026-11-21", "2026-11-21"]
    assert {(one["model"], one["service_tier"]) for one in found} == {("penstock-demo", "default")}
    assert sum(int(one["charged_nanos"]) for one in found) == 2 * 132_000 + 312_000
    for one in found:
        assert int(one["charged_nanos"]) == sum(
            int(one[meter]) for meter in ("input_nanos", "cached_input_nanos", "output_nanos")
        )
    assert [one["day"] for one in lines_of(client, "costs", format=ending, start_time=DAY)] == [
        "2026-11-21"
    ]


def test_costs_are_taken_apart_by_model_and_tier(customer, price, book):
    other = make_price("other", tier="batch")
    book(make_event(customer, price), make_event(customer, other, tier="batch"))
    client = person_of(customer)
    [bucket] = get(client, COSTS, group_by=["model", "service_tier"])["data"]
    found = {
        (one["model"], one["service_tier"], one["amount"]["nanos"]) for one in bucket["results"]
    }
    assert found == {("penstock-demo", "default", 132_000), ("other", "batch", 132_000)}
    [bucket] = get(client, COSTS, models=["other"])["data"]
    assert bucket["results"][0]["amount"]["nanos"] == 132_000
    assert Model.objects.count() == 2


def test_input_tokens_include_cached_ones_in_every_file_and_answer(busy, customer):
    """Today: 1,000 with 400 cached, and 2,000 with none."""
    client = person_of(customer)
    [usage] = get(client, USAGE)["data"][0]["results"]
    assert (usage["input_tokens"], usage["input_cached_tokens"]) == (3000, 400)
    for ending in ("csv", "jsonl"):
        [day] = lines_of(client, "costs", format=ending, **TODAY)
        assert (int(day["input_tokens"]), int(day["cached_input_tokens"])) == (3000, 400)
        lines = lines_of(client, "requests", format=ending, **TODAY)
        assert sum(int(one["input_tokens"]) for one in lines) == 3000
        assert sum(int(one["cached_input_tokens"]) for one in lines) == 400
    receipts = [client.get(f"requests/{one.event_id}").json() for one in busy[1:]]
    assert sum(one["usage"]["input_tokens"] for one in receipts) == 3000
    assert sum(
        line["tokens"] for one in receipts for line in one["lines"] if line["meter"] != "output"
    ) == 3000  # fmt: skip


@pytest.mark.parametrize("path", ["requests", "costs", "usage"])
@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({}, "start_time"),
        ({"start_time": "yesterday"}, "start_time"),
        ({"start_time": 0, "format": "xml"}, "format"),
    ],
)
def test_a_file_of_no_span_or_form_is_refused(customer, path, query, param):
    if (path, param) == ("usage", "format"):
        return
    reply = person_of(customer).get(path, query)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_a_file_holds_a_page_at_a_time_and_no_transaction(customer, price, book, monkeypatch):
    monkeypatch.setattr(selectors, "EXPORT_PAGE", 2)
    book(*(make_event(customer, price) for _ in range(5)))
    with CaptureQueriesContext(
        connection,
    ) as queries:
        chunks = body_of(person_of(customer), "requests", **EVER, format="jsonl")
    assert len(chunks.splitlines()) == 5
    pages = [one["sql"] for one in queries if 'FROM "metering_usage_event"' in one["sql"]]
    assert len(pages) == 4
    assert not any("DECLARE" in one["sql"] for one in queries)
