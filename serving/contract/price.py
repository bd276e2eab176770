"""What tokens cost: the one pure function that the gateway charges and billing rates with."""

from typing import Protocol

MILLION = 1_000_000


class Meters(Protocol):
    """Three prices in nano-dollars per million tokens."""

    @property
    def input_nanos(self) -> int: ...
    @property
    def cached_input_nanos(self) -> int: ...
    @property
    def output_nanos(self) -> int: ...


def charge_nanos(
    meters: Meters, *, input_tokens: int, cached_input_tokens: int, output_tokens: int
) -> int:
    """Return the charge for one request in nano-dollars, rounded once, halves up.

    `cached_input_tokens` is a part of `input_tokens`. Worked example, at 150, 75 and 600 nanos
    a token (150_000_000, 75_000_000 and 600_000_000 per million): 1,000 input of which 400
    cached, and 20 output, are 600*150 + 400*75 + 20*600 = 132,000 nanos = $0.000132.

    Raises ValueError on negative counts or more cached than input tokens.
    """
    if min(input_tokens, cached_input_tokens, output_tokens) < 0:
        raise ValueError("token counts are never negative")
    if cached_input_tokens > input_tokens:
        raise ValueError(
            f"cached_input_tokens is {cached_input_tokens}; wanted at most input_tokens,"
            f" {input_tokens}"
        )
    millionths = (
        (input_tokens - cached_input_tokens) * meters.input_nanos
        + cached_input_tokens * meters.cached_input_nanos
        + output_tokens * meters.output_nanos
    )
    return (millionths + MILLION // 2) // MILLION


def worst_case_nanos(
    meters: Meters, *, prompt_bytes: int, context_tokens: int, output_tokens_max: int, choices: int
) -> int:
    """Return the most one request can cost: what admission holds before work starts.

    A token is at least one byte, so `prompt_bytes`, capped by the context, bounds the input;
    the dearer input price is taken, and every one of `choices` may use all its output.
    """
    dearest = max(meters.input_nanos, meters.cached_input_nanos)
    millionths = (
        min(prompt_bytes, context_tokens) * dearest
        + output_tokens_max * choices * meters.output_nanos
    )
    return -(-millionths // MILLION)
