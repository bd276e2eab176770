"""Figures as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from web.console import formatting
from web.console.playground.usage import (
    AnswerTimer,
    PlaygroundChoice,
    PlaygroundChunk,
    PlaygroundDelta,
    PlaygroundUsage,
)

pytestmark = pytest.mark.unit

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (10_000, "10.0K"),
        (12_345, "12.3K"),
        (999_999, "1.00M"),
        (1_234_567, "1.23M"),
    ],
)
def test_large_numbers_have_three_digits(number: int, words: str) -> None:
    assert formatting.compact(number) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, formatting.NONE),
        (0.0091, "9.1 ms"),
        (0.312, "312 ms"),
        (1.237, "1.24 s"),
        (240, "240 s"),
    ],
)
def test_durations_have_their_natural_unit(seconds: float | None, words: str) -> None:
    assert formatting.duration(seconds) == words


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(seconds=-5), "in a moment"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(hours=5), "5 hours ago"),
        (timedelta(days=-30), "in 30 days"),
    ],
)
def test_moments_are_told_from_now(age: timedelta, words: str) -> None:
    assert formatting.ago(NOW - age, NOW) == words


def test_a_watch_tells_ttft_and_pace_after_the_first_token() -> None:
    times = iter([0.0, 0.5, 1.0, 1.5])
    watch = AnswerTimer(lambda: next(times))
    for _ in range(3):
        watch.note(PlaygroundChunk(choices=(PlaygroundChoice(PlaygroundDelta("word")),)))
    watch.note(PlaygroundChunk(usage=PlaygroundUsage(prompt_tokens=10, completion_tokens=11)))
    assert watch.ttft_seconds == 0.5
    assert watch.tokens_per_second(11) == 10.0  # ten tokens after the first, in one second


def test_a_single_piece_has_no_pace() -> None:
    times = iter([0.0, 0.5])
    watch = AnswerTimer(lambda: next(times))
    watch.note(PlaygroundChunk(choices=(PlaygroundChoice(PlaygroundDelta("word")),)))
    assert watch.tokens_per_second(1) is None
