"""The changes of a price book, meter by meter, and which of them look mis-keyed."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from control.catalog.models import Variant
from control.errors import Conflict
from control.pricing import selectors
from control.pricing.models import Price, PriceBook
from control.pricing.selectors import Schedule
from serving.contract.money import exact_dollars
from serving.contract.price import band_of

Meter = Literal["input", "cached_input", "output"]


@dataclass(frozen=True, slots=True)
class PriceChange:
    """One meter of one band, in nanos per million tokens; `old_nanos` is None where it had no
    price."""

    variant: Variant
    tier: str
    input_tokens_min: int
    meter: Meter
    old_nanos: int | None
    new_nanos: int

    @property
    def is_unusual(self) -> bool:
        """Whether it changes by more than half of the old price, or a first price is zero, except
        for the output of embeddings, which has no tokens."""
        if self.old_nanos is None:
            is_unused = self.meter == "output" and self.variant.model.makes_embeddings
            return self.new_nanos == 0 and not is_unused
        return 2 * abs(self.new_nanos - self.old_nanos) > self.old_nanos

    @property
    def subject(self) -> str:
        """The priced meter, such as `small:int8 batch output`."""
        floor = f" from {self.input_tokens_min:,} tokens" if self.input_tokens_min else ""
        return f"{self.variant} {self.tier} {self.meter.replace('_', ' ')}{floor}"

    @property
    def old(self) -> str:
        """The old price in dollars."""
        return "no price" if self.old_nanos is None else exact_dollars(self.old_nanos)

    @property
    def new(self) -> str:
        """The new price in dollars."""
        return exact_dollars(self.new_nanos)

    def __str__(self) -> str:
        return f"{self.subject} {self.old} → {self.new}"


class ConfirmationRequired(Conflict):
    """Prices look mis-keyed and the confirmation phrase is missing."""

    code = "confirmation_needed"

    def __init__(self, unusual: list[PriceChange], sentence: str) -> None:
        shown = "; ".join(map(str, unusual))
        super().__init__(
            f"Unusual, in dollars per million tokens: {shown}."
            f" If that is meant, type as confirmation: {sentence}",
            param="confirmation",
        )
        self.unusual = unusual
        self.sentence = sentence


def changes_in(book: PriceBook, prices: Iterable[Price], at: datetime) -> list[PriceChange]:
    """Return the changes that a book with these prices makes for its customers if it takes effect
    at `at`.

    Old and new prices are compared at the start of each band of both schedules, since a removed
    band is a change too. A first contract is compared with the list prices.
    """
    to_come: dict[tuple[str, str], list[Price]] = {}
    for price in prices:
        to_come.setdefault((price.tier, price.variant_id), []).append(price)
    before = {
        tier: selectors.schedules_in_force(book.organization, at, tier=tier)
        for tier in {tier for tier, _ in to_come}
    }
    return [
        change
        for (tier, variant_id), schedule in to_come.items()
        for change in _compare(before[tier].get(variant_id, ()), tuple(schedule))
    ]


def require_confirmation(
    book: PriceBook, changes: Iterable[PriceChange], confirmation: str
) -> None:
    """Raise ConfirmationRequired if changes are unusual and `confirmation` is not their phrase."""
    unusual = [change for change in changes if change.is_unusual]
    if unusual and confirmation.strip() != (sentence := confirmation_phrase(book, unusual)):
        raise ConfirmationRequired(unusual, sentence)


def confirmation_phrase(book: PriceBook, unusual: list[PriceChange]) -> str:
    """Return the phrase that confirms; it counts the unusual prices, so that it confirms the ones
    that were shown."""
    prices = "1 unusual price" if len(unusual) == 1 else f"{len(unusual)} unusual prices"
    return f"publish {book.name} with {prices}"


def _compare(before: Schedule, to_come: Schedule) -> list[PriceChange]:
    first = to_come[0].input_tokens_min
    floors = {price.input_tokens_min for price in (*before, *to_come)}
    return [
        PriceChange(
            variant=new.variant,
            tier=new.tier,
            input_tokens_min=floor,
            meter=meter,
            old_nanos=getattr(band_of(before, floor), f"{meter}_nanos") if before else None,
            new_nanos=getattr(new, f"{meter}_nanos"),
        )
        for floor in sorted(floor for floor in floors if floor >= first)
        for new in [band_of(to_come, floor)]
        for meter in get_args(Meter)
    ]
