"""Which buckets cover an interval, and which rollups it is read from."""

from datetime import timedelta

import pytest

from billing.reading.buckets import HOURS, MINUTES, bucket_starts, series_spans, spans
from tests.fixtures.usage import NOW

pytestmark = pytest.mark.unit
HOUR = timedelta(hours=1)
MIDNIGHT = NOW.replace(hour=0, minute=0)


def test_hours_are_read_where_they_can_be():
    found = spans(NOW - 3 * HOUR, NOW)
    half = timedelta(minutes=30)
    assert [(source, end - start) for source, start, end in found] == [
        (MINUTES, half),
        (HOURS, 2 * HOUR),
        (MINUTES, half),
    ]


def test_within_an_hour_there_are_only_minutes():
    assert spans(NOW, NOW + HOUR / 4) == [(MINUTES, NOW, NOW + HOUR / 4)]


def test_whole_hours_need_no_minutes():
    assert spans(MIDNIGHT, MIDNIGHT + HOUR) == [(HOURS, MIDNIGHT, MIDNIGHT + HOUR)]


def test_starts_name_the_empty_buckets_too():
    assert bucket_starts(NOW, NOW + 2 * HOUR, "hour") == [
        NOW.replace(minute=0) + HOUR * step for step in range(3)
    ]
    assert bucket_starts(NOW, NOW, "day") == [MIDNIGHT]
    assert bucket_starts(MIDNIGHT, MIDNIGHT, "day") == []


def test_edges_without_minutes_widen_to_hours():
    start, end = NOW - 3 * HOUR, NOW
    widened = (start.replace(minute=0), end.replace(minute=0) + HOUR)
    assert spans(start, end, MIDNIGHT + 2 * 24 * HOUR) == [(HOURS, *widened)]
    assert spans(start, end, MIDNIGHT) == spans(start, end)
    since_yesterday = spans(start - 24 * HOUR, end, MIDNIGHT)
    assert [(one.source, one.start) for one in since_yesterday] == [
        (HOURS, widened[0] - 24 * HOUR),
        (MINUTES, NOW.replace(minute=0)),
    ]


def test_a_series_by_the_minute_is_of_hours_where_minutes_are_gone():
    start, end = MIDNIGHT - HOUR / 2, MIDNIGHT + HOUR
    assert series_spans(start, end, "minute", MIDNIGHT) == [
        (HOURS, start, MIDNIGHT),
        (MINUTES, MIDNIGHT, end),
    ]
    assert series_spans(start, end, "minute") == [(MINUTES, start, end)]
    assert series_spans(MIDNIGHT, end, "minute", MIDNIGHT) == [(MINUTES, MIDNIGHT, end)]
