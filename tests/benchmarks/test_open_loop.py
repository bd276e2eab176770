"""Traces are the same for the same seed, and streams are timed by their frames."""

import pytest

from tests.benchmarks.open_loop import Seen, poisson

pytestmark = pytest.mark.unit


def test_a_trace_is_its_seeds_and_has_the_rates_that_were_asked() -> None:
    trace = poisson({"a": 50.0, "b": 5.0}, 100.0, seed=7)
    assert trace == poisson({"b": 5.0, "a": 50.0}, 100.0, seed=7)
    assert trace == sorted(trace)
    assert trace != poisson({"a": 50.0, "b": 5.0}, 100.0, seed=8)
    counts = {who: sum(other == who for _, other in trace) for who in "ab"}
    assert 4_700 < counts["a"] < 5_300
    assert 420 < counts["b"] < 580


def test_a_stream_is_timed_by_its_frames() -> None:
    seen = Seen("a", 1.0, 12, status=200, is_whole=True, frames_at=[1.25, 1.5, 1.5, 2.0])
    assert seen.ttft_ms == 250.0
    assert seen.gaps_ms == [250.0, 500.0]
    assert seen.tokens_within(1.3, 2.0) == 6.0
    assert Seen("a", 1.0, 12, frames_at=[1.5]).tokens_within(0.0, 9.0) == 0.0
