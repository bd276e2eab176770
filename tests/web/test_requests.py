"""The page of requests and its files: the same question, the same requests."""

import csv
import json
from collections.abc import AsyncIterator
from datetime import date, timedelta

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient, Client
from django.utils import timezone

from control.api_keys.models import ApiKey
from control.api_keys.services import create_api_key
from control.pricing.models import Price
from serving.contract.usage import OUTCOMES, UsageEvent
from tests.fixtures.console import book, make_request
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address
from web.console.requests import DAYS_OF_A_FILE, parse_query

TODAY = date(2026, 11, 21)
NOTHING_MADE = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}


@pytest.fixture
def events(org: SeededOrganization, key: ApiKey, prices: dict[str, Price]) -> list[UsageEvent]:
    """A request of each of four days, the oldest by another key."""
    other = create_api_key(actor=org.actor, project=org.project, name="Other")[0]
    now = timezone.now()
    keys = [other, key, key, key]
    made = [
        make_request(one, prices["bf16"], now - timedelta(days=days, minutes=1))
        for one, days in zip(keys, (40, 2, 1, 0), strict=True)
    ]
    book(*made, now=now)
    return made


def ids_of(events: list[UsageEvent]) -> list[str]:
    return [event.event_id for event in events]


@pytest.mark.integration
def test_a_file_has_the_last_days_oldest_first(
    member: Client, org: SeededOrganization, events: list[UsageEvent]
) -> None:
    file = b"".join(member.get(address(org.organization, "requests_csv"))).decode()
    lines = list(csv.DictReader(file.splitlines()))
    assert [line["request_id"] for line in lines] == ids_of(events[1:])
    assert {line["input_tokens"] for line in lines} == {"1000"}


@pytest.mark.integration
def test_a_file_and_its_page_answer_one_question(
    member: Client, org: SeededOrganization, events: list[UsageEvent]
) -> None:
    first = (timezone.now() - timedelta(days=50)).date().isoformat()
    for asked, wanted in (
        ({"from": first}, events),
        ({"from": first, "key": events[0].key_id}, events[:1]),
        ({"from": first, "to": first}, []),
    ):
        file = b"".join(member.get(address(org.organization, "requests_jsonl", **asked)))
        rows = member.get(address(org.organization, "requests", **asked)).context["rows"]
        assert [json.loads(line)["request_id"] for line in file.splitlines()] == ids_of(wanted)
        assert [str(row.event.event_id) for row in rows] == ids_of(wanted)[::-1]


@pytest.mark.integration
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_one_definition_of_a_request_holds_everywhere(
    member: Client, org: SeededOrganization, key: ApiKey, prices: dict[str, Price], outcome: str
) -> None:
    """What an engine refused is none, and the second try at one is a part of it."""
    now = timezone.now()
    other = create_api_key(actor=org.actor, project=org.project, name="Other")[0]
    made = NOTHING_MADE if outcome == "refused_by_engine" else {}
    event = make_request(key, prices["bf16"], now, outcome=outcome, **made)
    book(event, make_request(other, prices["bf16"], now), now=now)
    wanted = 0 if outcome in {"refused_by_engine", "hedged"} else 1

    organization, asked = org.organization, {"key": key.id, "from": now.date().isoformat()}
    listed = member.get(address(organization, "requests", **asked)).context["rows"]
    file = b"".join(member.get(address(organization, "requests_jsonl", **asked)))
    usage = member.get(address(organization, "usage", **asked)).context["totals"]
    query = {"start_time": int(now.timestamp()) - 3600, "api_key_ids": key.id}
    buckets = org.api().get("usage", query).json()["data"]
    told = [row["num_model_requests"] for bucket in buckets for row in bucket["results"]]
    counts = (len(listed), len(file.splitlines()), usage.request_count, sum(told))
    assert counts == (wanted,) * 4

    every = member.get(address(organization, "requests")).context["rows"]
    overview = member.get(address(organization, "overview")).context["seen"]
    assert (len(every), overview.month.request_count) == (wanted + 1,) * 2


@pytest.mark.integration
def test_a_stranger_gets_no_file(
    stranger: Client, outsider: SeededOrganization, events: list[UsageEvent]
) -> None:
    theirs = address(outsider.organization, "requests_jsonl", key=events[1].key_id)
    assert b"".join(stranger.get(theirs)) == b""


@pytest.mark.integration
@pytest.mark.django_db(transaction=True)
async def test_a_file_is_sent_while_it_is_read(
    org: SeededOrganization, events: list[UsageEvent]
) -> None:
    client = AsyncClient()
    await client.aforce_login(org.owner)
    reply = await client.get(address(org.organization, "requests_csv"))
    chunks: AsyncIterator[bytes] = reply.streaming_content
    assert [chunk.count(b"\n") async for chunk in chunks] == [1, 3]
    await sync_to_async(connections.close_all)()


@pytest.mark.unit
def test_the_question_survives_its_url() -> None:
    asked = {"from": "2026-11-01", "to": "2026-11-20", "model": "m", "key": "k", "project": "p"}
    assert parse_query(asked).parameters() == asked


@pytest.mark.unit
def test_a_file_covers_thirty_days_unless_told_otherwise() -> None:
    query = parse_query({}).within_days(TODAY)
    assert query.last == TODAY
    assert query.first == TODAY - timedelta(days=DAYS_OF_A_FILE - 1)
    assert parse_query({"from": "2030-01-01"}).within_days(TODAY).first == TODAY


@pytest.mark.unit
@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-40", "0001-01-01", "9999-12-31"])
def test_nonsense_is_not_asked(text: str) -> None:
    query = parse_query({"from": text, "to": text, "before": text})
    assert (query.start, query.end, query.before, query.is_filtered) == (None, None, None, False)
    assert query.within_days(TODAY).last == TODAY
