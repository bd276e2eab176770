"""What a price book changes, meter by meter, and which of it looks mis-keyed."""

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
    """One meter of one band, in nanos per million tokens; `old_nanos` of None: it had no price."""

    variant: Variant
    tier: str
    input_tokens_min: int
    meter: Meter
    old_nanos: int | None
    new_nanos: int

    @property
    def is_unusual(self) -> bool:
        """Whether it is more than half off what it was, or zero as the first price: but of what
        embeddings never take."""
        if self.old_nanos is None:
            is_of_nothing = self.meter == "output" and self.variant.model.makes_embeddings
            return self.new_nanos == 0 and not is_of_nothing
        return 2 * abs(self.new_nanos - self.old_nanos) > self.old_nanos

    @property
    def subject(self) -> str:
        """What has this price, such as `small:int8 batch output`."""
        floor = f" from {self.input_tokens_min:,} tokens" if self.input_tokens_min else ""
        return f"{self.variant} {self.tier} {self.meter.replace('_', ' ')}{floor}"

    @property
    def old(self) -> str:
        """The price before, in dollars."""
        return "no price" if self.old_nanos is None else exact_dollars(self.old_nanos)

    @property
    def new(self) -> str:
        """The price from then on, in dollars."""
        return exact_dollars(self.new_nanos)

    def __str__(self) -> str:
        return f"{self.subject} {self.old} → {self.new}"


class ConfirmationRequired(Conflict):
    """Prices look mis-keyed and nobody has said in words that they are meant."""

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
    """Return what the prices of a book change for whom it holds, if it takes effect at `at`.

    Compared at the beginning of each band, of the schedule before and of the one to come, since a
    band that goes is a change too. A first contract is compared with the list.
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
    """Raise Unconfirmed where changes are unusual and the confirmation is not their sentence."""
    unusual = [change for change in changes if change.is_unusual]
    if unusual and confirmation.strip() != (sentence := confirmation_phrase(book, unusual)):
        raise ConfirmationRequired(unusual, sentence)


def confirmation_phrase(book: PriceBook, unusual: list[PriceChange]) -> str:
    """Return the words that confirm: they count, so that they confirm what was looked at."""
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
