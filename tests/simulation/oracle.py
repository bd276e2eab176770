"""What must be true, worked out apart from the services: from prices and plain arithmetic."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from serving.contract.usage import UsageEvent
from tests.simulation.clock import EPOCH
from tests.simulation.world import Caller, Tariff

PAID_FOR = ("completed", "client_cancelled")
CLOCKS_APART = timedelta(minutes=5)
HALF = Fraction(1, 2)


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


def due(event: UsageEvent, tariffs: Iterable[Tariff], callers: Collection[Caller]) -> Due:
    """Rate an event by the rule it names, waived where it is nobody's to pay."""
    named = _named(event, tariffs)
    if named is None:
        return Due(0, 0, 0, True)
    uncached = event.input_tokens - event.cached_input_tokens
    meters = (
        Fraction(uncached * named.input_nanos, 10**6),
        Fraction(event.cached_input_tokens * named.cached_input_nanos, 10**6),
        Fraction(event.output_tokens * named.output_nanos, 10**6),
    )
    first, second, third = _each(meters) if event.rating == 2 else _once(meters)
    is_waived = event.outcome not in PAID_FOR or fault_of(event, tariffs, callers) is not None
    return Due(first, second, third, is_waived)


def most_nanos(bands: Iterable[Tariff], input_tokens: int, output_tokens: int) -> int:
    """Return the most that a request can cost whose input is of at most so many tokens: a nano more
    than its meters rounded up where input can be rounded up twice."""
    most = 0
    for band in bands:
        if band.input_tokens_min <= input_tokens:
            prices = (band.input_nanos, band.cached_input_nanos)
            is_twice = all(price % 10**6 for price in prices)
            of_input = ceil(Fraction(input_tokens * max(prices), 10**6)) + int(is_twice)
            of_output = ceil(Fraction(output_tokens * band.output_nanos, 10**6))
            most = max(most, of_input + of_output)
    return most


def fault_of(
    event: UsageEvent, tariffs: Iterable[Tariff], callers: Collection[Caller]
) -> str | None:
    """Return why an event cannot be charged, whatever came of it; None where it can."""
    if Caller(event.organization_id, event.project_id, event.key_id) not in callers:
        return "foreign_caller"
    named = _named(event, tariffs)
    if named is None or named.is_cancelled:
        return "unknown_price"
    is_same = (named.variant_id, named.tier) == (event.variant_id, event.tier)
    if not is_same or named.organization_id not in (None, event.organization_id):
        return "foreign_price"
    is_early = received_at(event.event_id) + CLOCKS_APART < named.effective_at
    return "early_price" if is_early else None


def price_alarms(
    event: UsageEvent, tariffs: Iterable[Tariff], callers: Collection[Caller]
) -> list[str]:
    """Return what somebody must be told of an event's price: its fault, or what is odd about it."""
    fault, named = fault_of(event, tariffs, callers), _named(event, tariffs)
    if fault is not None or named is None:
        return [str(fault)]
    alarms = []
    over = named.superseded_at
    if over is not None and over <= received_at(event.event_id) - CLOCKS_APART:
        alarms.append("superseded_price")
    below = named.input_tokens_below
    if event.input_tokens < named.input_tokens_min or (below and event.input_tokens >= below):
        alarms.append("other_band")
    return alarms


def received_at(event_id: str) -> datetime:
    """Return the moment an event's id begins with."""
    return EPOCH + timedelta(milliseconds=int(event_id.replace("-", "")[:12], 16))


def fine_periods(limited_id: str, at: datetime) -> dict[str, datetime]:
    """Return when the week and the day of a moment began, by the budgets of who is limited."""
    day = datetime(at.year, at.month, at.day, tzinfo=UTC)
    monday = day - timedelta(days=day.isoweekday() - 1)
    return {f"limit:{limited_id}:week": monday, f"limit:{limited_id}:day": day}


def ends_at(budget_id: str, starts_at: datetime) -> datetime | None:
    """Return when a period of a budget is over that began then; None for a balance."""
    if budget_id.startswith("balance:"):
        return None
    if is_fine(budget_id):
        return starts_at + timedelta(days=7 if budget_id.endswith("week") else 1)
    return month_of(starts_at + timedelta(days=31))


def is_fine(budget_id: str) -> bool:
    """Tell whether a budget is by the week or the day."""
    return budget_id.count(":") == 2


def month_of(at: datetime) -> datetime:
    """Return the first moment of a UTC month."""
    return datetime(at.year, at.month, 1, tzinfo=UTC)


def _named(event: UsageEvent, tariffs: Iterable[Tariff]) -> Tariff | None:
    return {one.price_id: one for one in tariffs}.get(event.price_id)


def _each(meters: tuple[Fraction, ...]) -> list[int]:
    """Rule 2: each meter is rounded half up by itself."""
    return [int(nanos + HALF) for nanos in meters]


def _once(meters: tuple[Fraction, ...]) -> list[int]:
    """Rule 1: the sum is rounded; each meter takes what the sum so far has grown by."""
    sums = [int(sum(meters[: count + 1], HALF)) for count in range(len(meters))]
    return [after - before for before, after in zip([0, *sums], sums, strict=False)]
