"""Rating: what one usage event is charged at one price."""

from dataclasses import dataclass
from typing import Protocol

from serving.contract.price import MeterPrices, TokenCharge, charge


class Tokens(Protocol):
    """The token counts of one request; cached input is a part of input."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def cached_input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


class Ratable(Tokens, Protocol):
    """Token counts that know whether the customer pays for them, and by which rule."""

    @property
    def billable(self) -> bool: ...
    @property
    def rating(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Rating:
    """What one event costs per meter, and whether the operator waives all of it."""

    charge: TokenCharge
    is_waived: bool

    @property
    def charged_nanos(self) -> int:
        """What the customer pays."""
        return 0 if self.is_waived else self.charge.total_nanos

    @property
    def waived_nanos(self) -> int:
        """What the customer would have paid had the failure not been ours."""
        return self.charge.total_nanos if self.is_waived else 0


def rate(event: Ratable, meters: MeterPrices) -> Rating:
    """Return what one event costs, by the version of the rule that it names.

    Worked example: `charge` in serving.contract.price gives 90,000 + 30,000 + 12,000 nanos; a
    `completed` event is charged 132,000 and waived 0, an `engine_failed` one charged 0 and waived
    132,000. Raises ValueError for a rule that is not known.
    """
    due = charge(
        meters,
        input_tokens=event.input_tokens,
        cached_input_tokens=event.cached_input_tokens,
        output_tokens=event.output_tokens,
        rating=event.rating,
    )
    return Rating(due, is_waived=not event.billable)
