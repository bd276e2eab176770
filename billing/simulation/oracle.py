"""What must be true, worked out apart from the services: from prices and plain arithmetic."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

from billing.simulation.clock import EPOCH
from billing.simulation.world import Tariff
from serving.contract.usage import UsageEvent

PAID_FOR = ("completed", "client_cancelled")
CLOCKS_APART = timedelta(minutes=5)


class BrokenError(AssertionError):
    """A promise of the books does not hold."""


def require(condition: bool, sentence: str, *about: object) -> None:
    """Raise BrokenError with a sentence of what must hold, and what it does not hold of."""
    if not condition:
        raise BrokenError(f"{sentence}: {', '.join(map(str, about))}")


class Due(NamedTuple):
    """What a request costs by the world's own price lists."""

    input_nanos: int
    cached_input_nanos: int
    output_nanos: int
    is_waived: bool

    @property
    def rated_nanos(self) -> int:
        """The meters together."""
        return self.input_nanos + self.cached_input_nanos + self.output_nanos

    @property
    def charged_nanos(self) -> int:
        """What the customer pays."""
        return 0 if self.is_waived else self.rated_nanos


def due(event: UsageEvent, tariffs: Iterable[Tariff]) -> Due:
    """Rate an event: each meter rounded half up by itself, waived where it is nobody's to pay."""
    named = {one.price_id: one for one in tariffs}.get(event.price_id)
    if named is None:
        return Due(0, 0, 0, True)
    parts = (
        ((event.input_tokens - event.cached_input_tokens), named.input_nanos),
        (event.cached_input_tokens, named.cached_input_nanos),
        (event.output_tokens, named.output_nanos),
    )
    uncached, cached, output = (
        int(Fraction(tokens * price, 10**6) + Fraction(1, 2)) for tokens, price in parts
    )
    is_early = received_at(event.event_id) + CLOCKS_APART < named.effective_at
    return Due(uncached, cached, output, is_early or event.outcome not in PAID_FOR)


def received_at(event_id: str) -> datetime:
    """Return the moment an event's id begins with."""
    return EPOCH + timedelta(milliseconds=int(event_id.replace("-", "")[:12], 16))


def month_of(at: datetime) -> datetime:
    """Return the first moment of a UTC month."""
    return datetime(at.year, at.month, 1, tzinfo=UTC)
