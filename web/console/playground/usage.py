"""The tokens, cost and speed of one response."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from django.utils.translation import gettext

from serving.contract.money import exact_dollars, format_dollars
from serving.contract.price import PriceBand, band_of, charge
from web.console.formatting import NONE, duration


class CachedDetails(msgspec.Struct, frozen=True):
    """The part of the prompt that was already in the prefix cache."""

    cached_tokens: int = 0


class PlaygroundUsage(msgspec.Struct, frozen=True):
    """The `usage` of a chat completion."""

    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: CachedDetails | None = None


class PlaygroundDelta(msgspec.Struct, frozen=True):
    """The part of the response in a chunk."""

    content: str | None = None
    tool_calls: tuple[msgspec.Raw, ...] | None = None


class PlaygroundChoice(msgspec.Struct, frozen=True):
    """One choice of a chunk; the playground requests one."""

    delta: PlaygroundDelta = PlaygroundDelta()


class PlaygroundChunk(msgspec.Struct, frozen=True):
    """The fields of a stream's chunk that the receipt needs."""

    choices: tuple[PlaygroundChoice, ...] = ()
    usage: PlaygroundUsage | None = None


class AnswerFigures(msgspec.Struct, frozen=True):
    """The figures below a response. The console measures times from when it sent the request."""

    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    charge_nanos: int
    ttft_seconds: float | None
    tokens_per_second: float | None


class AnswerTimer:
    """Records when the first and last piece of a response arrived, and its usage."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._first: float | None = None
        self._last: float | None = None
        self.usage: PlaygroundUsage | None = None

    def note(self, chunk: PlaygroundChunk) -> None:
        """Record a chunk that arrived now."""
        if chunk.usage is not None:
            self.usage = chunk.usage
        deltas = [choice.delta for choice in chunk.choices]
        if any(delta.content or delta.tool_calls for delta in deltas):
            self._last = self._clock()
            if self._first is None:
                self._first = self._last

    @property
    def ttft_seconds(self) -> float | None:
        """Time to first token; None if none arrived."""
        return None if self._first is None else self._first - self._started

    def tokens_per_second(self, output_tokens: int) -> float | None:
        """Return the speed after the first token; None if the response is too short."""
        if self._first is None or self._last is None or self._last <= self._first:
            return None
        return (output_tokens - 1) / (self._last - self._first)


def figures_of(timer: AnswerTimer, schedule: Sequence[PriceBand]) -> AnswerFigures | None:
    """Return a response's figures, priced in its band; None if the stream had no usage."""
    usage = timer.usage
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
        ttft_seconds=timer.ttft_seconds,
        tokens_per_second=timer.tokens_per_second(usage.completion_tokens),
    )


def shown(figures: AnswerFigures) -> dict[str, Any]:
    """Return the figures with formatted time and money, for the page."""
    pace = figures.tokens_per_second
    speed = NONE if pace is None else gettext("%(pace)s tokens/s") % {"pace": f"{pace:,.0f}"}
    return {
        **msgspec.structs.asdict(figures),
        "ttft": duration(figures.ttft_seconds),
        "pace": speed,
        "charge": format_dollars(figures.charge_nanos),
        "charge_exact": exact_dollars(figures.charge_nanos),
    }
