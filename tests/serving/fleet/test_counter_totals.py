"""What an engine counted in its replica's life: a total that only grows and misses nothing."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.probe import EngineHealth
from serving.fleet.replica import UNSEEN, CounterTotals, CounterValues

pytestmark = pytest.mark.unit
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
GROWTH = st.builds(CounterValues, *[st.integers(0, 10**12)] * 4)


def shown(counters: CounterValues, running: int = 1) -> EngineHealth:
    return EngineHealth(
        running=running,
        waiting=0,
        prompt_tokens=counters.input_tokens,
        generation_tokens=counters.output_tokens,
        cache_usage=0.5,
        cached_tokens=counters.cached_tokens,
        requests=counters.requests,
    )


@given(st.lists(GROWTH), st.integers(0, 10))
def test_an_engine_of_ours_is_counted_from_zero_however_often_it_is_looked_at(
    growths: list[CounterValues], restart_at: int
) -> None:
    engine, counted = CounterValues(), CounterTotals()
    for step, growth in enumerate(growths):
        engine = engine.plus(growth)
        counted = counted.updated(shown(engine), CounterValues(), AT)
        if step == restart_at:  # of the fleet: what it stored is what it goes on from
            counted = msgspec.json.decode(msgspec.json.encode(counted), type=CounterTotals)
    assert counted.total == engine


@given(GROWTH, GROWTH)
def test_what_anothers_engine_counted_before_us_is_not_ours(
    before: CounterValues, growth: CounterValues
) -> None:
    counted = UNSEEN.updated(shown(before), CounterValues(), AT)
    assert counted.total == CounterValues()
    assert counted.updated(shown(before.plus(growth)), CounterValues(), AT).total == growth


def test_an_engine_that_begins_anew_adds_what_it_counted_since() -> None:
    counted = CounterTotals().updated(shown(CounterValues(100, 50, 20, 3)), CounterValues(), AT)
    again = counted.updated(shown(CounterValues(7, 2, 0, 1)), CounterValues(), AT)
    assert again.total == CounterValues(107, 52, 20, 4)


PROBE = CounterValues(input_tokens=2, output_tokens=1, requests=1)
WORK = CounterValues(input_tokens=9, output_tokens=3, requests=1)


@pytest.mark.parametrize(
    ("grown", "probes", "running", "busy_seconds"),
    [
        (CounterValues(), CounterValues(), 0, 0),
        (CounterValues(), CounterValues(), 1, 5),
        (PROBE, PROBE, 0, 0),
        (WORK, CounterValues(), 0, 5),
        (PROBE.plus(WORK), PROBE, 0, 5),
    ],
)
def test_only_work_for_customers_is_busy(
    grown: CounterValues, probes: CounterValues, running: int, busy_seconds: int
) -> None:
    before = CounterTotals().updated(shown(CounterValues(), running=0), CounterValues(), AT)
    after = before.updated(shown(grown, running), probes, AT + timedelta(seconds=5))
    assert after.busy_seconds == busy_seconds
    assert after.probes == probes
