"""What explains a difference between engine and events, and that no more than that does."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.economics.reconciliation import PROBE_TOKENS, Reconciled, WindowUsage, reasons_of
from billing.economics.replica_hours import ReplicaHour
from tests.fixtures.engines import HOUR

pytestmark = pytest.mark.unit
ENGINE = ReplicaHour(
    *("rep_1", "dep_1", HOUR, HOUR, HOUR + timedelta(hours=1)),
    input_tokens=1_000,
    output_tokens=500,
    requests=10,
    seconds=3_600,
    ready_seconds=3_600,
    busy_seconds=60,
    cost_nanos=0,
    busy_cost_nanos=0,
    is_cost_known=False,
)
EVENTS = WindowUsage(10, 1_000, 500, input_tokens_max=100, output_tokens_max=50)


def unexplained(engine: dict[str, int], events: dict[str, int]) -> tuple[int, int]:
    hour, usage = replace(ENGINE, **engine), replace(EVENTS, **events)
    one = Reconciled(hour, usage, reasons_of(hour, usage), is_settled=True)
    left_over = one.unexplained_input_tokens, one.unexplained_output_tokens
    assert one.is_alarming == (left_over != (0, 0))
    assert not replace(one, is_settled=False).is_alarming
    return left_over


# Each case: what the engine says, what the events say, and what is left unexplained.
CASES = {
    "alike": ({}, {}, (0, 0)),
    "a probe that was given up": ({"input_tokens": 1_000 + PROBE_TOKENS}, {}, (0, 0)),
    "one token too many": ({"output_tokens": 501 + PROBE_TOKENS}, {}, (0, 1)),
    "three aborts, a step each": (
        {"output_tokens": 503 + PROBE_TOKENS}, {"cut_count": 3}, (0, 0),
    ),
    "three aborts, but four tokens": (
        {"output_tokens": 504 + PROBE_TOKENS}, {"cut_count": 3}, (0, 1),
    ),
    "a lost request, no larger than the largest": (
        {"input_tokens": 1_100, "output_tokens": 550}, {"unknown_count": 1}, (0, 0),
    ),
    "two choices more": ({"input_tokens": 1_200, "requests": 12}, {}, (0, 0)),
    "choices do not explain output": (
        {"output_tokens": 600, "requests": 12}, {}, (0, 100 - PROBE_TOKENS - 2),
    ),
    "an earlier request": (
        {"output_tokens": 540}, {"earlier_output_tokens": 40}, (0, 0),
    ),
    "a later request": ({"output_tokens": 460}, {"later_output_tokens": 40}, (0, 0)),
    "billed, but never made": ({"output_tokens": 459}, {"later_output_tokens": 40}, (0, -1)),
    "made, and nobody was billed": (
        {"input_tokens": 2_000, "output_tokens": 900}, {}, (1_000 - PROBE_TOKENS,
                                                          400 - PROBE_TOKENS),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_difference_is_explained_as_far_as_its_reasons_go(name: str) -> None:
    engine, events, left_over = CASES[name]
    assert unexplained(engine, events) == left_over


def test_only_what_occurred_is_named() -> None:
    usage = replace(EVENTS, cut_count=2)
    words = [reason.words for reason in reasons_of(ENGINE, usage)]
    assert words == [
        "test generations that the fleet lost sight of",
        "requests broken off, each within an engine step (2)",
    ]


@given(st.integers(-2_000, 2_000), st.integers(0, 500), st.integers(0, 500))
def test_more_reasons_never_explain_less(difference: int, earlier: int, later: int) -> None:
    engine = {"output_tokens": 500 + difference}
    _, alone = unexplained(engine, {})
    events = {"earlier_output_tokens": earlier, "later_output_tokens": later}
    _, helped = unexplained(engine, events)
    assert abs(helped) <= abs(alone) <= abs(difference)
    assert alone * difference >= 0
