"""What the console and the API read: exact sums, one organization's own."""

import uuid
from datetime import timedelta

import pytest

from billing.metering.ingest import ingest
from billing.metering.models import HourRollup, MinuteRollup
from billing.metering.selectors import (
    UsageFilters,
    bucket_starts,
    overview,
    receipt,
    recent_events,
    spans,
    usage_by_group,
    usage_series,
    usage_totals,
)
from control.errors import NotFound
from tests.support.usage import (
    NOW,
    add_key,
    ask_for,
    give_credit,
    make_batch,
    make_event,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MIDNIGHT = NOW.replace(hour=0, minute=0)


@pytest.fixture
def events(customer, outsider, price):
    """One request in each of the last 30 hours, and one of the outsider's in each."""
    moments = [NOW - HOUR * step for step in range(30)]
    mine = [make_event(customer, price, received_at=at) for at in moments]
    theirs = [make_event(outsider, price, received_at=at) for at in moments]
    ingest(make_batch(mine + theirs), now=NOW)
    return mine


def test_a_series_by_hour_and_by_day_has_the_same_sum(customer, events):
    for bucket, buckets in (("hour", 30), ("day", 2)):
        points = usage_series(customer.organization, NOW - 2 * DAY, NOW + HOUR, bucket)
        assert len(points) == buckets
        assert sum(point.sums.request_count for point in points) == 30
        assert sum(point.sums.charged_nanos for point in points) == 30 * 132_000


def test_a_series_by_the_minute(customer, events):
    points = usage_series(customer.organization, NOW - HOUR, NOW + HOUR, "minute")
    assert [point.bucket_at for point in points] == [NOW - HOUR, NOW]


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        (NOW, NOW, 0),
        (NOW, NOW + timedelta(minutes=1), 1),
        (NOW - HOUR, NOW, 1),  # half open: the request at NOW is outside
        (NOW - 3 * HOUR, NOW + timedelta(seconds=30), 4),
        (MIDNIGHT, MIDNIGHT + DAY, 13),
        (NOW - 40 * HOUR, NOW + HOUR, 30),
    ],
)
def test_totals_are_exact_to_the_minute(customer, events, start, end, count):
    assert usage_totals(customer.organization, start, end).request_count == count


def test_totals_read_hours_where_they_can(db):
    found = spans(NOW - 3 * HOUR, NOW)
    edges = [(source, last - first) for source, first, last in found]
    half = timedelta(minutes=30)
    assert edges == [(MinuteRollup, half), (HourRollup, 2 * HOUR), (MinuteRollup, half)]


def test_bucket_starts_name_the_empty_ones_too():
    assert bucket_starts(NOW, NOW + 2 * HOUR, "hour") == [
        NOW.replace(minute=0) + HOUR * step for step in range(3)
    ]
    assert bucket_starts(NOW, NOW, "day") == [MIDNIGHT]
    assert bucket_starts(MIDNIGHT, MIDNIGHT, "day") == []


def test_groups_come_dearest_first(customer, price):
    second = add_key(customer)
    ingest(make_batch(make_event(one, price) for one in (customer, second, second)), now=NOW)
    groups = usage_by_group(customer.organization, MIDNIGHT, NOW, group_by=["key", "tier"])
    assert [one.group for one in groups] == [
        (second.key.id, "standard"),
        (customer.key.id, "standard"),
    ]
    assert [one.sums.request_count for one in groups] == [2, 1]


def test_filters_choose(customer, price):
    second = add_key(customer)
    ingest(make_batch(make_event(one, price) for one in (customer, second, second)), now=NOW)
    only = UsageFilters(key_ids=(second.key.id,))
    assert usage_totals(customer.organization, MIDNIGHT, NOW, filters=only).request_count == 2
    assert len(recent_events(customer.organization, filters=only)) == 2


def test_percentiles_come_from_counted_buckets(customer, price):
    speeds = [0.012] * 9 + [0.9]
    ingest(make_batch(make_event(customer, price, ttft_seconds=s) for s in speeds), now=NOW)
    sums = usage_totals(customer.organization, MIDNIGHT, NOW)
    assert 0.010 < sums.ttft_p50_seconds <= 0.015
    assert 0.7 < sums.ttft_p95_seconds <= 1.0


def test_without_usage_there_are_no_percentiles(customer):
    sums = usage_totals(customer.organization, MIDNIGHT, NOW)
    assert (sums.request_count, sums.ttft_p50_seconds, sums.ttft_p95_seconds) == (0, None, None)


def test_the_overview_tells_money_day_and_month(customer, outsider, events):
    give_credit(customer, 10**9)
    ask_for(customer.id, 1_000)
    seen = overview(customer.organization, NOW)
    assert seen.balance_nanos == 10**9 - 30 * 132_000
    assert (seen.held_nanos, seen.available_nanos) == (1_000, seen.balance_nanos - 1_000)
    assert (seen.today.request_count, seen.month.request_count) == (13, 30)
    assert overview(outsider.organization, NOW).held_nanos == 0


def test_recent_events_page_backwards(customer, events):
    first = recent_events(customer.organization, limit=20)
    rest = recent_events(customer.organization, before=first[-1].event_id, limit=20)
    assert [str(one.event_id) for one in first + rest] == [one.event_id for one in events]


def test_a_receipt_says_tokens_times_price(customer, outsider, price, events):
    slip = receipt(customer.organization, uuid.UUID(events[0].event_id))
    assert slip.price == price
    assert [(line.meter, line.tokens, line.amount_millionths) for line in slip.lines] == [
        ("input", 600, 600 * 150_000_000),
        ("cached_input", 400, 400 * 75_000_000),
        ("output", 20, 20 * 600_000_000),
    ]
    assert slip.event.charged_nanos == 132_000


def test_anothers_receipt_looks_like_a_missing_one(customer, outsider, events):
    for event_id in (uuid.UUID(events[0].event_id), uuid.uuid4()):
        with pytest.raises(NotFound, match="no such request"):
            receipt(outsider.organization, event_id)
