"""Which step follows which, and when."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.collection.schedule import Planned, next_step

pytestmark = pytest.mark.unit
SCHEDULE = [(0, "retry"), (3, "retry"), (5, "retry"), (7, "retry"), (10, "limit"), (14, "suspend")]
DUE = date(2026, 11, 15)


def planned(last_days=None, last_on=None, not_before=None, schedule=SCHEDULE):
    return next_step(
        schedule, due_on=DUE, last_days=last_days, last_on=last_on, not_before=not_before
    )


def test_the_first_step_is_on_the_day_it_is_due():
    assert planned() == Planned("retry", 0, DUE)
    assert planned().at(9) == datetime(2026, 11, 15, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("last_days", "last_on", "kind", "on"),
    [
        (0, date(2026, 11, 15), "retry", date(2026, 11, 18)),
        (7, date(2026, 11, 22), "limit", date(2026, 11, 25)),
        (7, date(2026, 12, 1), "limit", date(2026, 12, 4)),  # taken late: three days later still
        (10, date(2026, 11, 25), "suspend", date(2026, 11, 29)),
    ],
)
def test_steps_keep_their_distance(last_days, last_on, kind, on):
    found = planned(last_days, last_on)
    assert (found.kind, found.on) == (kind, on)


def test_after_the_last_there_is_none():
    assert planned(14, date(2026, 11, 29)) is None
    assert planned(schedule=[]) is None


def test_nothing_follows_before_the_day_that_was_promised():
    assert planned(0, DUE, date(2026, 12, 24)).on == date(2026, 12, 24)
    assert planned(0, DUE, date(2026, 11, 16)).on == date(2026, 11, 18)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_whenever_somebody_looks_the_notice_between_steps_is_kept(delays):
    taken, today, last_days, last_on = [], DUE, None, None
    for delay in delays:
        today += timedelta(days=delay)
        found = planned(last_days, last_on)
        if found is not None and found.on <= today:
            last_days, last_on = found.days, today
            taken.append((found.days, today))
    assert [days for days, _ in taken] == [days for days, _ in SCHEDULE][: len(taken)]
    for (days, on), (later_days, later_on) in pairwise(taken):
        assert (later_on - on).days >= later_days - days
