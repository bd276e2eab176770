"""Why a request cost what it cost: tokens times price, by meter."""

import uuid
from dataclasses import dataclass, replace

from billing.reading import selectors
from billing.reading.sums import Usage
from control.errors import ObjectNotFound
from control.organizations.models import Organization
from control.pricing.models import Price


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """Tokens of one meter, their price (None where the event names none that was published), and
    what the meter came to, as it was booked, None for who may not see money."""

    meter: str
    tokens: int
    nanos_per_million_tokens: int | None
    amount_nanos: int | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """One request, its price, and the three lines: they add up to the event's `charged_nanos`, or
    to its `waived_nanos`. Without `has_money` nothing is told of either."""

    event: Usage
    price: Price | None
    lines: tuple[ReceiptLine, ReceiptLine, ReceiptLine]
    has_money: bool = True


def receipt(organization: Organization, event_id: uuid.UUID, *, with_money: bool = True) -> Receipt:
    """Return the receipt of a request, of its real outcome. Raises ObjectNotFound."""
    event = selectors.event(organization, event_id, with_money=with_money)
    if event is None:
        raise ObjectNotFound("There is no such request.")
    price = selectors.price(event.supply.price_id)
    lines = lines_of(event, price)
    if not with_money:
        first, second, third = (replace(line, amount_nanos=None) for line in lines)
        lines = first, second, third
    return Receipt(event=event, price=price, lines=lines, has_money=with_money)


def lines_of(event: Usage, price: Price | None) -> tuple[ReceiptLine, ReceiptLine, ReceiptLine]:
    """Return the three lines. Amounts are the event's own: whatever rule rated it, they add up."""
    uncached, cached = event.input_tokens - event.cached_input_tokens, event.cached_input_tokens
    asked: tuple[int | None, int | None, int | None] = (None, None, None)
    if price is not None:
        asked = price.input_nanos, price.cached_input_nanos, price.output_nanos
    return (
        ReceiptLine("input", uncached, asked[0], event.input_nanos),
        ReceiptLine("cached_input", cached, asked[1], event.cached_input_nanos),
        ReceiptLine("output", event.output_tokens, asked[2], event.output_nanos),
    )
