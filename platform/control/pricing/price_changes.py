"""The changes of a price book, meter by meter, and which of them look mis-keyed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, get_args

from django.utils.translation import gettext

from control.catalog.models import Variant
from control.errors import Conflict
from control.pricing import selectors
from control.pricing.models import Price, PriceBook
from control.pricing.selectors import Schedule
from serving.contract.money import DOLLAR_NANOS, exact_dollars
from serving.contract.price import band_of

Meter = Literal["input", "cached_input", "output"]
FIRST_PRICE_NANOS = (DOLLAR_NANOS // 1000, 100 * DOLLAR_NANOS)
"""The usual range of a first price, in nanos per million tokens: $0.001 to $100."""
SIBLING_FACTOR = 5
"""A first price usually lies within this factor of the model's other prices."""


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
    sibling_nanos: tuple[int, int] | None = None
    """The lowest and the highest price above zero that the model's other variants, tiers and bands
    have for the same meter; for a first price only."""

    @property
    def is_first(self) -> bool:
        """Whether the meter had no price before."""
        return self.old_nanos is None

    @property
    def is_unusual(self) -> bool:
        """Whether the price looks mis-keyed."""
        return bool(self.reason)

    @property
    def reason(self) -> str:
        """Why the price looks mis-keyed, empty where it does not.

        A change is unusual beyond half of the old price; a first price where it is zero, far from
        the model's other prices, or out of the usual range. The output of embeddings, which has no
        tokens, may be zero.
        """
        if self.old_nanos is not None:
            is_far = 2 * abs(self.new_nanos - self.old_nanos) > self.old_nanos
            return gettext("more than half away from the old price") if is_far else ""
        if self.new_nanos == 0:
            is_unused = self.meter == "output" and self.variant.model.makes_embeddings
            return "" if is_unused else gettext("a first price of zero")
        if self.sibling_nanos is not None:
            low, high = self.sibling_nanos
            if SIBLING_FACTOR * self.new_nanos < low or self.new_nanos > SIBLING_FACTOR * high:
                words = gettext("a first price far from the model's others, %(low)s to %(high)s")
                return words % {"low": exact_dollars(low), "high": exact_dollars(high)}
        low, high = FIRST_PRICE_NANOS
        if not low <= self.new_nanos <= high:
            words = gettext("a first price outside of %(low)s to %(high)s")
            return words % {"low": exact_dollars(low), "high": exact_dollars(high)}
        return ""

    @property
    def floor(self) -> str:
        """The beginning of the band, empty for the base band."""
        return f" from {self.input_tokens_min:,} tokens" if self.input_tokens_min else ""

    @property
    def schedule(self) -> str:
        """The priced band, such as `small:int8 batch`."""
        return f"{self.variant} {self.tier}{self.floor}"

    @property
    def subject(self) -> str:
        """The priced meter, such as `small:int8 batch output`."""
        return f"{self.variant} {self.tier} {self.meter.replace('_', ' ')}{self.floor}"

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
        shown = "; ".join(f"{change} ({change.reason})" for change in unusual)
        told = " ".join([f"Unusual, in dollars per million tokens: {shown}.", *examples(unusual)])
        super().__init__(
            f"{told} If that is meant, type as confirmation: {sentence}",
            param="confirmation",
        )
        self.unusual = unusual
        self.sentence = sentence


def changes_in(book: PriceBook, prices: Iterable[Price], at: datetime) -> list[PriceChange]:
    """Return the changes that a book with these prices makes for its customers if it takes effect
    at `at`.

    Old and new prices are compared at the start of each band of both schedules, since a removed
    band is a change too. A first contract is compared with the list prices. A first price carries
    the range of its model's other prices, in force or in the book.
    """
    prices = list(prices)
    to_come: dict[tuple[str, str], list[Price]] = {}
    for price in prices:
        to_come.setdefault((price.tier, price.variant_id), []).append(price)
    before = {
        tier: selectors.schedules_in_force(book.organization, at, tier=tier)
        for tier in {tier for tier, _ in to_come}
    }
    changes = [
        change
        for (tier, variant_id), schedule in to_come.items()
        for change in _compare(before[tier].get(variant_id, ()), tuple(schedule))
    ]
    if any(change.is_first for change in changes):
        known = [*selectors.all_in_force(book.organization, at), *prices]
        return [_beside_siblings(change, known) for change in changes]
    return changes


def examples(changes: Iterable[PriceChange]) -> list[str]:
    """Return a sentence for each schedule with first prices: what a million tokens will cost."""
    schedules: dict[str, list[PriceChange]] = {}
    for change in changes:
        if change.is_first:
            schedules.setdefault(change.schedule, []).append(change)
    return [_example(schedule, firsts) for schedule, firsts in schedules.items()]


def _example(schedule: str, firsts: list[PriceChange]) -> str:
    meters = {
        "input": gettext("%(cost)s for 1,000,000 input tokens"),
        "cached_input": gettext("%(cost)s for 1,000,000 cached input tokens"),
        "output": gettext("%(cost)s for 1,000,000 output tokens"),
    }
    costs = ", ".join(meters[change.meter] % {"cost": change.new} for change in firsts)
    return gettext("With %(schedule)s a customer will pay %(costs)s.") % {
        "schedule": schedule,
        "costs": costs,
    }


def _beside_siblings(change: PriceChange, known: Iterable[Price]) -> PriceChange:
    """Return a first price with the range of its model's other prices."""
    if not change.is_first:
        return change
    own = (change.variant.id, change.tier, change.input_tokens_min)
    others = [
        nanos
        for price in known
        if price.variant.model_id == change.variant.model_id
        and (price.variant_id, price.tier, price.input_tokens_min) != own
        and (nanos := getattr(price, f"{change.meter}_nanos"))
    ]
    return replace(change, sibling_nanos=(min(others), max(others))) if others else change


def require_confirmation(
    book: PriceBook, changes: Iterable[PriceChange], confirmation: str
) -> None:
    """Raise ConfirmationRequired if changes are unusual and `confirmation` is not their phrase."""
    unusual = [change for change in changes if change.is_unusual]
    if unusual and confirmation.strip() != (sentence := confirmation_phrase(book, unusual)):
        raise ConfirmationRequired(unusual, sentence)


def confirmation_phrase(book: PriceBook, unusual: list[PriceChange]) -> str:
    """Return the phrase that confirms. It counts the unusual prices, so that it confirms the ones
    that were shown, and says the highest amount of a first price."""
    prices = "1 unusual price" if len(unusual) == 1 else f"{len(unusual)} unusual prices"
    firsts = [change.new_nanos for change in unusual if change.is_first]
    amount = f", 1 million tokens for up to {exact_dollars(max(firsts))}" if firsts else ""
    return f"publish {book.name} with {prices}{amount}"


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
