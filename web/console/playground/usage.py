"""What one answer took: tokens, money, and how quickly it came."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from serving.contract.money import exact_dollars, format_dollars
from serving.contract.price import Band, band_of, charge
from web.console.formatting import NONE, duration


class CachedDetails(msgspec.Struct, frozen=True):
    """The part of the prompt that was already in the prefix cache."""

    cached_tokens: int = 0


class PlaygroundUsage(msgspec.Struct, frozen=True):
    """The `usage` of a chat completion, as the wire says it."""

    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: CachedDetails | None = None


class PlaygroundDelta(msgspec.Struct, frozen=True):
    """What a chunk adds to the answer."""

    content: str | None = None
    tool_calls: tuple[msgspec.Raw, ...] | None = None


class PlaygroundChoice(msgspec.Struct, frozen=True):
    """One answer of a chunk; the playground asks for one."""

    delta: PlaygroundDelta = PlaygroundDelta()


class PlaygroundChunk(msgspec.Struct, frozen=True):
    """The parts of a stream's chunk that the receipt needs."""

    choices: tuple[PlaygroundChoice, ...] = ()
    usage: PlaygroundUsage | None = None


class AnswerFigures(msgspec.Struct, frozen=True):
    """The figures under an answer. Times were measured by the console, from its own send."""

    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    charge_nanos: int
    ttft_seconds: float | None
    tokens_per_second: float | None


class AnswerTimer:
    """Notes when the first and the last piece of an answer came, and the usage at its end."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._first: float | None = None
        self._last: float | None = None
        self.usage: PlaygroundUsage | None = None

    def note(self, chunk: PlaygroundChunk) -> None:
        """Take in one chunk, at the moment it came."""
        if chunk.usage is not None:
            self.usage = chunk.usage
        deltas = [choice.delta for choice in chunk.choices]
        if any(delta.content or delta.tool_calls for delta in deltas):
            self._last = self._clock()
            if self._first is None:
                self._first = self._last

    @property
    def ttft_seconds(self) -> float | None:
        """Time to first token, or None when none came."""
        return None if self._first is None else self._first - self._started

    def tokens_per_second(self, output_tokens: int) -> float | None:
        """Return the pace after the first token, or None for an answer too short to tell."""
        if self._first is None or self._last is None or self._last <= self._first:
            return None
        return (output_tokens - 1) / (self._last - self._first)


def figures_of(watch: AnswerTimer, schedule: Sequence[Band]) -> AnswerFigures | None:
    """Price what the watch saw in its band; None when the stream never told its usage."""
    usage = watch.usage
    if usage is None:
        return None
    details = usage.prompt_tokens_details
    cached_tokens = details.cached_tokens if details else 0
    due = charge(
        band_of(schedule, usage.prompt_tokens),
        input_tokens=usage.prompt_tokens,
        cached_input_tokens=cached_tokens,
        output_tokens=usage.completion_tokens,
    )
    return AnswerFigures(
        input_tokens=usage.prompt_tokens,
        cached_input_tokens=cached_tokens,
        output_tokens=usage.completion_tokens,
        charge_nanos=due.total_nanos,
        ttft_seconds=watch.ttft_seconds,
        tokens_per_second=watch.tokens_per_second(usage.completion_tokens),
    )


def shown(figures: AnswerFigures) -> dict[str, Any]:
    """Return the figures as the page shows it: its figures, and words for time and money."""
    pace = figures.tokens_per_second
    return {
        **msgspec.structs.asdict(figures),
        "ttft": duration(figures.ttft_seconds),
        "pace": NONE if pace is None else f"{pace:,.0f} tokens/s",
        "charge": format_dollars(figures.charge_nanos),
        "charge_exact": exact_dollars(figures.charge_nanos),
    }
