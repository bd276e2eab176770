"""Rating: what one usage event is charged at one price."""

from dataclasses import dataclass
from typing import Protocol

from serving.contract.price import Meters, charge_nanos


class Tokens(Protocol):
    """The token counts of one request; cached input is a part of input."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def cached_input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


class Ratable(Tokens, Protocol):
    """Token counts that know whether the customer pays for them."""

    @property
    def billable(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Charge:
    """What the customer pays, or what the operator waives; one of them is always zero."""

    charged_nanos: int
    waived_nanos: int


@dataclass(frozen=True, slots=True)
class Line:
    """Tokens of one meter times its price. `amount_millionths` is in 10^-6 nanos, exact, since
    a charge is rounded once, after its lines are added."""

    meter: str
    tokens: int
    nanos_per_million_tokens: int

    @property
    def amount_millionths(self) -> int:
        """Tokens times price, not yet rounded to nanos."""
        return self.tokens * self.nanos_per_million_tokens


def rate(event: Ratable, meters: Meters) -> Charge:
    """Return the charge of one event; all of it is waived when the event is not billable.

    Worked example: `charge_nanos` in serving.contract.price gives 132,000 nanos; a `completed`
    event is charged 132,000 and waived 0, an `engine_failed` one charged 0 and waived 132,000.
    """
    nanos = charge_nanos(
        meters,
        input_tokens=event.input_tokens,
        cached_input_tokens=event.cached_input_tokens,
        output_tokens=event.output_tokens,
    )
    return Charge(nanos, 0) if event.billable else Charge(0, nanos)


def lines(event: Tokens, meters: Meters) -> tuple[Line, ...]:
    """Return the three lines that a charge is made of."""
    uncached = event.input_tokens - event.cached_input_tokens
    return (
        Line("input", uncached, meters.input_nanos),
        Line("cached_input", event.cached_input_tokens, meters.cached_input_nanos),
        Line("output", event.output_tokens, meters.output_nanos),
    )
