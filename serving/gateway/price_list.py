"""What a request costs, by variant, tier and organization, at any moment."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from serving.contract.records import ContractPriceRecord, PriceRecord
from serving.contract.units import WrittenTier

Schedule = tuple[PriceRecord, ...]
"""The bands that one variant costs in one tier, the base band first."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What one price book says of a variant and tier, from a moment on or until another."""

    effective_at: datetime
    ends_at: datetime | None
    bands: Schedule

    def has_ended(self, at: datetime) -> bool:
        """Whether a contract was over by then."""
        return self.ends_at is not None and self.ends_at <= at


Key = tuple[str, WrittenTier, str | None]
"""Variant, tier, and the organization whose contract it is; None for list prices."""


class PriceList:
    """Every published price, by what it prices and since when."""

    def __init__(
        self,
        prices: Iterable[PriceRecord] = (),
        contract_prices: Iterable[ContractPriceRecord] = (),
    ) -> None:
        self._prices: dict[Key, dict[str, PriceRecord]] = {}
        self._listings: dict[Key, list[Listing]] = {}
        """Of the keys that were asked for since one of their prices changed."""
        for price in (*prices, *contract_prices):
            self.replace(None, price)

    def replace(self, before: PriceRecord | None, after: PriceRecord | None) -> None:
        """Take one price out and put another in."""
        if before is not None:
            key = _key(before)
            self._prices[key].pop(before.price_id)
            self._listings.pop(key, None)
            if not self._prices[key]:
                del self._prices[key]
        if after is not None:
            key = _key(after)
            self._prices.setdefault(key, {})[after.price_id] = after
            self._listings.pop(key, None)

    def schedule(
        self,
        variant_id: str,
        organization_id: str,
        at: datetime,
        tier: WrittenTier = "default",
    ) -> Schedule | None:
        """Return the bands in force for an organization: by its contract, else by the list.

        The newest contract decides: once it has ended, list prices hold, not an older contract.
        """
        own = self._newest((variant_id, tier, organization_id), at)
        if own is None or own.has_ended(at):
            own = self._newest((variant_id, tier, None), at)
        return None if own is None else own.bands

    def _newest(self, key: Key, at: datetime) -> Listing | None:
        prices = self._prices.get(key)
        if prices is None:
            return None
        dated = self._listings.get(key)
        if dated is None:
            dated = self._listings[key] = _listings(prices.values())
        place = bisect_right(dated, at, key=attrgetter("effective_at"))
        return dated[place - 1] if place else None


def _key(price: PriceRecord) -> Key:
    own = price.organization_id if isinstance(price, ContractPriceRecord) else None
    return price.variant_id, price.tier, own


def _listings(prices: Iterable[PriceRecord]) -> list[Listing]:
    """Group bands by the moment their book takes effect: one book does at a time."""
    books: defaultdict[tuple[datetime, datetime | None], list[PriceRecord]] = defaultdict(list)
    for price in prices:
        ends_at = price.ends_at if isinstance(price, ContractPriceRecord) else None
        books[price.effective_at, ends_at].append(price)
    listings = []
    for (effective_at, ends_at), bands in books.items():
        bands.sort(key=attrgetter("input_tokens_min"))
        # Without its base a schedule is not whole: the one before stays in force.
        if bands[0].input_tokens_min == 0:
            listings.append(Listing(effective_at, ends_at, tuple(bands)))
    return sorted(listings, key=attrgetter("effective_at"))
