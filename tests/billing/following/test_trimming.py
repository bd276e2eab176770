"""Sums by the minute go when their days are sealed and old; sums by the hour answer for them."""

from datetime import timedelta

import pytest
from django.conf import settings

from billing.following import tasks, trimming
from billing.following.integrity import check_all
from billing.following.models import HourRollup, MinuteRollup
from billing.following.trimming import minutes_kept_from, trim_minutes
from billing.metering.ingest import ingest
from billing.reading.selectors import usage_series, usage_totals
from tests.fixtures.following import catch_up, finish
from tests.fixtures.usage import NOW, make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MIDNIGHT = NOW.replace(hour=0, minute=0)
THREE_AGO = MIDNIGHT - 3 * DAY + 10 * HOUR


def take_in(*events, now=NOW):
    ingest(make_batch(events), now=now)


@pytest.fixture
def four_days(customer, price):
    """Two requests of one hour on each of four days; all but the last day are sealed."""
    for back in (3, 2, 1, 0):
        at = THREE_AGO + (3 - back) * DAY
        take_in(
            make_event(customer, price, received_at=at + timedelta(minutes=5)),
            make_event(customer, price, received_at=at + timedelta(minutes=40)),
            now=at + HOUR,
        )
    finish(NOW)


def days_of(table):
    return sorted({at.date() for at in table.objects.values_list("bucket_at", flat=True)})


def test_minutes_of_old_days_go_and_hours_stay(four_days):
    assert trim_minutes(now=NOW, days=1) == 4
    assert minutes_kept_from() == NOW.date() - DAY
    assert days_of(MinuteRollup) == [NOW.date() - DAY, NOW.date()]
    assert len(days_of(HourRollup)) == 4
    assert trim_minutes(now=NOW, days=1) == 0


def test_minutes_of_days_that_are_not_sealed_stay(four_days):
    assert trim_minutes(now=NOW + 30 * DAY, days=1) == 6
    assert minutes_kept_from() == NOW.date()
    assert days_of(MinuteRollup) == [NOW.date()]


def test_nothing_goes_before_a_day_is_sealed(customer, price):
    take_in(make_event(customer, price))
    catch_up(NOW)
    assert trim_minutes(now=NOW + 30 * DAY, days=1) == 0
    assert minutes_kept_from() is None


def test_all_goes_page_by_page(four_days, monkeypatch):
    monkeypatch.setattr(trimming, "PAGE_ROWS", 1)
    assert trim_minutes(now=NOW, days=0) == 6


def test_what_is_gone_stays_gone_when_more_days_are_to_be_kept(four_days):
    trim_minutes(now=NOW, days=1)
    trim_minutes(now=NOW, days=14)
    assert minutes_kept_from() == NOW.date() - DAY


def test_the_books_hold_after_trimming(four_days, customer, price):
    trim_minutes(now=NOW, days=0)
    late = make_event(customer, price, received_at=THREE_AGO)
    take_in(late)
    catch_up(NOW)
    assert [one.sentence for one in check_all() if not one.holds] == []


def test_late_usage_is_read_by_the_hour_and_goes_with_its_neighbours(four_days, customer, price):
    trim_minutes(now=NOW, days=1)
    take_in(make_event(customer, price, received_at=THREE_AGO))
    catch_up(NOW)
    start, end = THREE_AGO, THREE_AGO + timedelta(minutes=30)
    assert usage_totals(customer.organization, start, end).request_count == 3
    finish(NOW + DAY)
    assert trim_minutes(now=NOW + DAY, days=0) == 5


def test_edges_widen_to_hours_only_where_minutes_are_gone(four_days, customer):
    trim_minutes(now=NOW, days=1)
    half = timedelta(minutes=30)
    first_half = [
        usage_totals(customer.organization, at, at + half).request_count
        for at in (THREE_AGO + number * DAY for number in range(4))
    ]
    assert first_half == [2, 2, 1, 1]
    from_half = usage_totals(customer.organization, THREE_AGO + half, NOW)
    assert (
        from_half.request_count == usage_totals(customer.organization, THREE_AGO, NOW).request_count
    )


def test_a_series_by_the_minute_has_hours_where_minutes_are_gone(four_days, customer):
    trim_minutes(now=NOW, days=2)
    points = usage_series(customer.organization, THREE_AGO, THREE_AGO + DAY + HOUR, "minute")
    assert [(one.bucket_at - THREE_AGO, one.sums.request_count) for one in points] == [
        (timedelta(), 2),
        (DAY + timedelta(minutes=5), 1),
        (DAY + timedelta(minutes=40), 1),
    ]


def test_the_task_keeps_as_many_days_as_it_is_told(four_days, monkeypatch):
    monkeypatch.setattr(tasks.timezone, "now", lambda: NOW + 13 * DAY)
    tasks.trim_minutes()
    kept = settings.CONFIG.minute_usage_retention_days - 13
    assert days_of(MinuteRollup) == [NOW.date() - back * DAY for back in range(kept, -1, -1)]
