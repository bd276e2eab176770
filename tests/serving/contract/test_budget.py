"""Budgets by name: what they limit, and the periods that their ids say."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.budget import (
    LIMIT_PERIODS,
    balance_budget_id,
    is_fine,
    kind_of,
    limit_budget_id,
    limited_id,
    period_end,
    period_of,
    period_start,
)

MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2999, 12, 1), timezones=st.just(UTC))
IDS = st.sampled_from([limit_budget_id("org_a", period) for period in LIMIT_PERIODS])
DAYS = {"day": {1}, "week": {7}, "month": {28, 29, 30, 31}}


@given(IDS, MOMENTS)
def test_every_moment_lies_in_one_period_and_the_next_begins_where_it_ends(budget_id, at):
    start = period_start(budget_id, at)
    end = period_end(budget_id, start)
    assert start <= at < end
    assert period_start(budget_id, start) == start
    assert period_start(budget_id, end) == end
    assert period_start(budget_id, end - timedelta(microseconds=1)) == start
    assert (start.hour, start.minute, start.second, start.microsecond) == (0, 0, 0, 0)
    assert (end - start).days in DAYS[period_of(budget_id)]


@given(MOMENTS)
def test_weeks_are_iso_weeks_across_the_ends_of_years(at):
    start = period_start("limit:org_a:week", at)
    assert start.isocalendar()[:2] == at.isocalendar()[:2]
    assert start.isoweekday() == 1


@given(IDS, MOMENTS, st.integers(-14, 14))
def test_a_period_does_not_depend_on_the_zone_a_moment_is_told_in(budget_id, at, hours):
    elsewhere = at.astimezone(timezone(timedelta(hours=hours)))
    assert period_start(budget_id, elsewhere) == period_start(budget_id, at)


@pytest.mark.parametrize(
    ("budget_id", "at", "start", "end"),
    [
        ("limit:org_a", "2026-12-31T23:59:59.999", "2026-12-01", "2027-01-01"),
        ("limit:org_a:day", "2024-02-29T00:00", "2024-02-29", "2024-03-01"),
        ("limit:org_a:week", "2027-01-01T12:00", "2026-12-28", "2027-01-04"),
        ("limit:org_a:week", "2026-11-22T23:59", "2026-11-16", "2026-11-23"),
        ("limit:key_a:week", "2026-11-23T00:00", "2026-11-23", "2026-11-30"),
    ],
)
def test_the_edges_of_periods(budget_id, at, start, end):
    moment, starts_at, ends_at = (
        datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (at, start, end)
    )
    assert period_start(budget_id, moment) == starts_at
    assert period_end(budget_id, starts_at) == ends_at


def test_a_balance_has_one_period_without_end():
    name = balance_budget_id("org_a")
    start = period_start(name, datetime.max.replace(tzinfo=UTC))
    assert (start.year, period_end(name, start), period_of(name)) == (1970, None, "lifetime")


@pytest.mark.parametrize(
    ("budget_id", "kind", "limited", "fine"),
    [
        ("balance:org_a", "balance", "org_a", False),
        ("limit:org_a", "organization", "org_a", False),
        ("limit:proj_a:day", "project", "proj_a", True),
        ("limit:key_a:week", "key", "key_a", True),
        ("limit:key_a:month", None, "key_a", False),
        ("limit:key_a:", None, "key_a", False),
        ("limit:user_a", None, "user_a", False),
        ("limit:", None, "", False),
        ("balance:", None, "", False),
        ("org_a", None, "", False),
    ],
)
def test_an_id_says_what_it_limits(budget_id, kind, limited, fine):
    assert (kind_of(budget_id), limited_id(budget_id), is_fine(budget_id)) == (kind, limited, fine)
