"""What the console and the API read: exact sums, one organization's own."""

import uuid
from datetime import timedelta

import pytest

from billing.reading.filters import EVERYTHING, UsageFilters
from billing.reading.selectors import (
    event_pages,
    overview,
    recent_events,
    usage_by_group,
    usage_series,
    usage_totals,
)
from serving.contract.usage import UsageEvent
from tests.fixtures.usage import NOW, add_key, ask_for, give_credit, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MIDNIGHT = NOW.replace(hour=0, minute=0)


@pytest.fixture
def events(customer, outsider, price, book) -> list[UsageEvent]:
    """One request in each of the last 30 hours, and one of the outsider's in each."""
    moments = [NOW - HOUR * step for step in range(30)]
    mine = [make_event(customer, price, received_at=at) for at in moments]
    theirs = [make_event(outsider, price, received_at=at) for at in moments]
    book(*mine, *theirs)
    return mine


@pytest.fixture
def two_keys(customer, outsider, price, book):
    """A request by the first key, two by the second, one of the outsider's; returns the second."""
    second = add_key(customer)
    book(*(make_event(one, price) for one in (customer, second, second, outsider)))
    return second


def ids(found):
    return [str(one.event_id) for one in found]


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


def test_the_meters_add_up_to_the_charge(customer, price, book):
    book(make_event(customer, price), make_event(customer, price, outcome="engine_failed"))
    sums = usage_totals(customer.organization, MIDNIGHT, NOW)
    # 600 at 150, 400 at 75 and 20 at 600 nanos
    assert (sums.input_nanos, sums.cached_input_nanos, sums.output_nanos) == (
        90_000,
        30_000,
        12_000,
    )
    assert (sums.charged_nanos, sums.waived_nanos) == (132_000, 132_000)
    assert (sums.input_tokens, sums.uncached_input_tokens) == (2_000, 1_200)


def test_groups_come_dearest_first(customer, two_keys):
    groups = usage_by_group(customer.organization, MIDNIGHT, NOW, group_by=["key", "tier"])
    assert [one.group for one in groups] == [
        (two_keys.key.id, "default"),
        (customer.key.id, "default"),
    ]
    assert [one.sums.request_count for one in groups] == [2, 1]


@pytest.mark.parametrize("dimension", ["project", "model", "variant", "price", "endpoint"])
def test_every_dimension_groups(customer, price, two_keys, dimension):
    [group] = usage_by_group(customer.organization, MIDNIGHT, NOW, group_by=[dimension])
    ids_of = {
        "project": customer.project.id,
        "model": price.variant.model_id,
        "variant": price.variant_id,
        "price": price.id,
        "endpoint": "chat.completions",
    }
    assert (group.group, group.sums.request_count) == ((ids_of[dimension],), 3)


def test_filters_choose_sums_and_requests(customer, price, two_keys):
    for only, count in (
        (UsageFilters(key_ids=(two_keys.key.id,)), 2),
        (UsageFilters(project_ids=(customer.project.id,), tiers=("default",)), 3),
        (UsageFilters(price_ids=(price.id,), variant_ids=(price.variant_id,)), 3),
        (UsageFilters(model_ids=("mdl_none",)), 0),
        (UsageFilters(endpoints=("chat.completions",), tiers=("batch",)), 0),
    ):
        sums = usage_totals(customer.organization, MIDNIGHT, NOW, filters=only)
        assert sums.request_count == count
        assert len(recent_events(customer.organization, now=NOW, filters=only)) == count


def test_what_was_no_request_takes_no_place_in_a_filtered_page(customer, price, book):
    older = make_event(customer, price, received_at=NOW - HOUR)
    lost = make_event(customer, price, received_at=NOW, outcome="gateway_lost")
    hedged = make_event(customer, price, received_at=NOW, outcome="hedged", event_id=lost.event_id)
    for event in (older, lost, hedged):
        book(event)
    for only in (EVERYTHING, UsageFilters(key_ids=(customer.key.id,))):
        [found] = recent_events(customer.organization, now=NOW, filters=only, limit=1)
        assert str(found.event_id) == older.event_id


def test_percentiles_come_from_counted_buckets(customer, price, book):
    speeds = [0.012] * 9 + [0.9]
    book(*(make_event(customer, price, ttft_seconds=seconds) for seconds in speeds))
    sums = usage_totals(customer.organization, MIDNIGHT, NOW, with_ttft=True)
    assert 0.010 < sums.ttft_p50_seconds <= 0.015
    assert 0.7 < sums.ttft_p95_seconds <= 1.0


def test_first_tokens_are_counted_only_where_asked(customer, events):
    assert usage_totals(customer.organization, MIDNIGHT, NOW).ttft_p50_seconds is None


def test_without_usage_there_are_no_percentiles(customer):
    sums = usage_totals(customer.organization, MIDNIGHT, NOW, with_ttft=True)
    assert (sums.request_count, sums.ttft_p50_seconds, sums.ttft_p95_seconds) == (0, None, None)


def test_the_overview_tells_money_day_and_month(customer, outsider, price, book):
    give_credit(customer, 10**9)
    moments = [NOW - HOUR * step for step in range(30)]
    book(
        *(make_event(one, price, received_at=at) for one in (customer, outsider) for at in moments)
    )
    ask_for(customer.balance, 1_000)
    seen = overview(customer.organization, NOW)
    assert seen.balance_nanos == 10**9 - 30 * 132_000
    assert (seen.held_nanos, seen.available_nanos) == (1_000, seen.balance_nanos - 1_000)
    assert (seen.today.request_count, seen.month.request_count) == (13, 30)
    assert [day.sums.request_count for day in seen.days] == [17, 13]
    assert [one.group for one in seen.models] == [(price.variant.model_id,)]
    assert 0.015 < seen.ttft_p50_seconds <= 0.02
    assert overview(outsider.organization, NOW).held_nanos == 0


def test_the_overview_of_somebody_new_is_empty(customer, outsider, price, book):
    book(make_event(outsider, price))
    seen = overview(customer.organization, NOW)
    assert (seen.latest, seen.days, seen.models, seen.month.request_count) == ([], [], [], 0)


def test_the_overview_counts_no_other_month(customer, price, book):
    book(*(make_event(customer, price, received_at=NOW - day * DAY) for day in (0, 20, 21)))
    seen = overview(customer.organization, NOW)  # the 21st of a month
    assert seen.month.request_count == 2
    assert sum(day.sums.request_count for day in seen.days) == 1


@pytest.mark.parametrize("filtered", [False, True])
def test_recent_events_page_backwards(customer, events, filtered):
    only = UsageFilters(key_ids=(customer.key.id,) * filtered)
    first = recent_events(customer.organization, now=NOW, filters=only, limit=20)
    before = first[-1].event_id
    rest = recent_events(customer.organization, now=NOW, filters=only, before=before, limit=20)
    assert ids(first + rest) == [one.event_id for one in events]


def test_a_filter_pages_through_busy_and_quiet_hours_alike(customer, outsider, price, book):
    second = add_key(customer)
    minutes = [*range(1, 40), 200, 201, 900, 5000]  # mine, and others' in every one of them
    moments = [NOW - timedelta(minutes=minute) for minute in minutes]
    mine = [make_event(second, price, received_at=at) for at in moments]
    others = [
        make_event(one, price, received_at=at) for one in (customer, outsider) for at in moments
    ]
    book(*mine, *others)
    only, before, seen = UsageFilters(key_ids=(second.key.id,)), None, []
    while page := recent_events(
        customer.organization, now=NOW, filters=only, before=before, limit=7
    ):
        seen += ids(page)
        before = page[-1].event_id
    assert seen == [one.event_id for one in mine]


@pytest.mark.parametrize("filtered", [False, True])
def test_recent_events_of_an_interval(customer, events, filtered):
    only = UsageFilters(key_ids=(customer.key.id,) * filtered)
    start, end = NOW - 5 * HOUR, NOW - 2 * HOUR
    found = recent_events(customer.organization, now=NOW, filters=only, start=start, end=end)
    assert ids(found) == [one.event_id for one in events[3:6]]  # half open, newest first


def test_a_request_that_no_follower_saw_yet_passes_its_filter(customer, price, book):
    from billing.following.models import HourRollup

    book(make_event(customer, price, received_at=NOW))
    HourRollup.objects.all().delete()
    only = UsageFilters(key_ids=(customer.key.id,))
    assert len(recent_events(customer.organization, now=NOW, filters=only)) == 1


def test_caller_supply_and_origin_come_with_the_events(customer, events, django_assert_num_queries):
    with django_assert_num_queries(1):
        found = recent_events(customer.organization, now=NOW)
        assert {one.caller.key_id for one in found} == {customer.key.id}
        assert {one.supply.tier for one in found} == {"default"}
        assert {one.origin.gateway_id for one in found} == {"gw_1"}


def test_pages_of_an_export_hold_each_request_once(customer, events, monkeypatch):
    monkeypatch.setattr("billing.reading.selectors.EXPORT_PAGE", 7)
    pages = list(event_pages(customer.organization, NOW - 40 * HOUR, NOW))
    assert [len(page) for page in pages] == [7, 7, 7, 7, 1]
    found = ids(one for page in pages for one in page)
    assert found == [one.event_id for one in reversed(events[1:])]


def test_an_outsider_reads_none_of_it(customer, outsider, two_keys):
    theirs = UsageFilters(key_ids=(customer.key.id, two_keys.key.id))
    asked = {"filters": theirs}
    stranger = outsider.organization
    assert usage_series(stranger, MIDNIGHT, NOW, "hour", **asked) == []
    assert usage_by_group(stranger, MIDNIGHT, NOW, group_by=["key"], **asked) == []
    assert usage_totals(stranger, MIDNIGHT, NOW, **asked).request_count == 0
    assert recent_events(stranger, now=NOW, **asked) == []
    assert list(event_pages(stranger, MIDNIGHT, NOW, **asked)) == []
    assert overview(stranger, NOW, **asked).month.request_count == 0
    assert usage_totals(stranger, MIDNIGHT, NOW).request_count == 1


def test_an_id_beyond_all_calendars_is_no_place_to_page_from(customer, events):
    beyond = uuid.UUID(int=2**128 - 1)
    assert len(recent_events(customer.organization, now=NOW, before=beyond)) == 30
    only = UsageFilters(key_ids=(customer.key.id,))
    found = recent_events(customer.organization, now=NOW, filters=only, before=beyond)
    assert len(found) == 30
