"""What tokens cost: the pure functions that the gateway charges and billing rates with.

A *schedule* is what one variant costs in one tier: its context bands, by `input_tokens_min`, the
base band (0) first. A band applies to the whole request, by the input tokens it really had.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from serving.contract.records import PriceRecord

MILLION = 1_000_000
RATING = 2
"""The version of the rule: 1 rounded the sum of the meters once, 2 rounds each meter by itself."""


class MeterPrices(Protocol):
    """Three prices in nano-dollars per million tokens."""

    @property
    def input_nanos(self) -> int: ...
    @property
    def cached_input_nanos(self) -> int: ...
    @property
    def output_nanos(self) -> int: ...


class PriceBand(MeterPrices, Protocol):
    """The prices of requests with at least so many input tokens."""

    @property
    def input_tokens_min(self) -> int: ...


AnyBand = TypeVar("AnyBand", bound=PriceBand)


class TokenCharge(msgspec.Struct, frozen=True):
    """What each meter of one request costs, in nano-dollars; input is the uncached part."""

    input_nanos: int
    cached_input_nanos: int
    output_nanos: int

    @property
    def total_nanos(self) -> int:
        """The charge: the meters add up to it."""
        return self.input_nanos + self.cached_input_nanos + self.output_nanos


def charge(
    meters: MeterPrices,
    *,
    input_tokens: int,
    cached_input_tokens: int,
    output_tokens: int,
    rating: int = RATING,
) -> TokenCharge:
    """Return what one request costs at these prices, by a version of the rule.

    `cached_input_tokens` is a part of `input_tokens`. Worked examples, at 150, 75 and 600 nanos
    a token (150_000_000, 75_000_000 and 600_000_000 per million): 1,000 input of which 400 cached,
    and 20 output, are 600*150 + 400*75 + 20*600 = 90,000 + 30,000 + 12,000 = 132,000 nanos. At
    half a nano a token for all meters, 1 uncached, 1 cached and 1 output token are 1 + 1 + 1 = 3
    nanos by rule 2; by rule 1 they were 1.5, rounded to 2, told as 1 + 0 + 1.

    Raises ValueError on negative counts, more cached than input tokens, or an unknown rule.
    """
    _check_tokens(input_tokens, cached_input_tokens, output_tokens)
    millionths = (
        (input_tokens - cached_input_tokens) * meters.input_nanos,
        cached_input_tokens * meters.cached_input_nanos,
        output_tokens * meters.output_nanos,
    )
    if rating == RATING:
        return TokenCharge(*map(_half_up, millionths))
    if rating == 1:
        return _rounded_once(*millionths)
    raise ValueError(f"rating is {rating}; wanted 1 or {RATING}")


def band_of(schedule: Sequence[AnyBand], input_tokens: int) -> AnyBand:
    """Return the band of a schedule that a request with so many input tokens is charged by."""
    if len(schedule) == 1:
        return schedule[0]
    return [band for band in schedule if band.input_tokens_min <= input_tokens][-1]


def worst_case_nanos(
    schedule: Sequence[PriceBand],
    *,
    input_tokens_max: int,
    output_tokens_max: int,
    choices: int,
) -> int:
    """Return the most one request can cost: what admission holds before work starts.

    `input_tokens_max` bounds the input (`prompt.py`); every one of `choices` may use all its
    output; the dearest band that the input can reach is taken.
    """
    output_tokens = output_tokens_max * choices
    if len(schedule) == 1:
        return _ceiling_nanos(schedule[0], input_tokens_max, output_tokens)
    reachable = [band for band in schedule if band.input_tokens_min <= input_tokens_max]
    return max(_ceiling_nanos(band, input_tokens_max, output_tokens) for band in reachable)


def _ceiling_nanos(meters: MeterPrices, input_tokens: int, output_tokens: int) -> int:
    """Rounding an uncached and a cached part by themselves may cost one nano more than rounding
    all input at once. Where a token of one of them costs whole nanos, it is not rounded at all."""
    dearest = max(meters.input_nanos, meters.cached_input_nanos)
    split = 1 if meters.input_nanos % MILLION and meters.cached_input_nanos % MILLION else 0
    return _up(input_tokens * dearest) + split + _up(output_tokens * meters.output_nanos)


def _rounded_once(uncached: int, cached: int, output: int) -> TokenCharge:
    """Round the running sum at each meter: the parts are never negative and add up."""
    first, second = _half_up(uncached), _half_up(uncached + cached)
    total = _half_up(uncached + cached + output)
    return TokenCharge(first, second - first, total - second)


def _half_up(millionths: int) -> int:
    return (millionths + MILLION // 2) // MILLION


def _up(millionths: int) -> int:
    return -(-millionths // MILLION)


def _check_tokens(input_tokens: int, cached_input_tokens: int, output_tokens: int) -> None:
    if min(input_tokens, cached_input_tokens, output_tokens) < 0:
        raise ValueError("token counts are never negative")
    if cached_input_tokens > input_tokens:
        raise ValueError(
            f"cached_input_tokens is {cached_input_tokens}; wanted at most input_tokens,"
            f" {input_tokens}"
        )


Schedule = tuple[PriceRecord, ...]
"""The bands that one variant costs in one tier, the base band first."""
