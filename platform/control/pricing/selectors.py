"""Reads price books: the prices in force for an organization, and whether the price that a usage
event names was valid at its time, for its organization and its prompt length."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db import connection
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import DenseRank

from control.catalog.models import Variant
from control.db.models import get_or_not_found
from control.organizations.models import Organization
from control.pricing.models import Price, PriceBook, ServiceTier, superseded_at

PriceStatus = Literal["not_yet", "in_force", "superseded", "cancelled"]
SUPERSEDED_AT = "superseded_at"
"""The property of a book that is loaded with the rows."""
Schedule = tuple[Price, ...]
"""The price bands of one variant in one tier, the base band first."""
# The published prices with these ids, each with its book's times, the start of the next band in its
# book, and the effective time of the next book that prices the same variant and tier.
VALIDITY = """
SELECT price.id, price.variant_id, price.tier, book.organization_id,
    price.input_nanos, price.cached_input_nanos, price.output_nanos,
    price.input_tokens_min,
    (
        SELECT min(band.input_tokens_min) FROM pricing_price AS band
        WHERE (band.book_id, band.variant_id, band.tier)
            = (price.book_id, price.variant_id, price.tier)
          AND band.input_tokens_min > price.input_tokens_min
    ),
    book.effective_at,
    least(book.ends_at, (
        SELECT min(later.effective_at) FROM pricing_price_book AS later
        WHERE later.organization_id IS NOT DISTINCT FROM book.organization_id
          AND later.published_at IS NOT NULL AND later.cancelled_at IS NULL
          AND later.effective_at > book.effective_at
          AND EXISTS (
              SELECT FROM pricing_price AS same
              WHERE (same.book_id, same.variant_id, same.tier)
                  = (later.id, price.variant_id, price.tier))
    )),
    book.cancelled_at
FROM pricing_price AS price JOIN pricing_price_book AS book ON book.id = price.book_id
WHERE price.id = ANY(%s) AND book.published_at IS NOT NULL
"""
# Each contract's term per variant and tier: until it ends or the organization's next one begins.
# Every published book has exactly one base band per schedule, which stands for the schedule.
TERMS = """
SELECT organization_id, variant_id, tier, starts_at, ends_at FROM (
    SELECT book.organization_id, price.variant_id, price.tier, book.effective_at AS starts_at,
        least(book.ends_at, lead(book.effective_at) OVER (
            PARTITION BY book.organization_id, price.variant_id, price.tier
            ORDER BY book.effective_at
        )) AS ends_at
    FROM pricing_price AS price JOIN pricing_price_book AS book ON book.id = price.book_id
    WHERE book.organization_id IS NOT NULL AND price.input_tokens_min = 0
      AND book.published_at IS NOT NULL AND book.cancelled_at IS NULL
) AS term
WHERE starts_at < %(end)s AND (ends_at IS NULL OR ends_at > %(start)s)
"""


@dataclass(frozen=True, slots=True)
class PriceValidity:
    """A published price with the times of its book; the meters are nanos per million tokens.

    `superseded_at` is when the next book that prices the same variant and tier for the same
    organization (None: list prices) takes effect, or when the contract ends. The band applies to
    requests of `input_tokens_min` up to, not including, `input_tokens_below` input tokens.
    """

    price_id: str
    variant_id: str
    tier: str
    organization_id: str | None
    input_nanos: int
    cached_input_nanos: int
    output_nanos: int
    input_tokens_min: int
    input_tokens_below: int | None
    effective_at: datetime
    superseded_at: datetime | None
    cancelled_at: datetime | None

    def at(self, moment: datetime) -> PriceStatus:
        """Return the status of the price at a time; a cancelled one was never in force."""
        if self.cancelled_at is not None:
            return "cancelled"
        if moment < self.effective_at:
            return "not_yet"
        over = self.superseded_at is not None and self.superseded_at <= moment
        return "superseded" if over else "in_force"

    def is_open_to(self, organization_id: str) -> bool:
        """Whether this organization may be charged by it: a list price, or its own contract."""
        return self.organization_id in (None, organization_id)

    def takes(self, input_tokens: int) -> bool:
        """Whether the band applies to a request with this number of input tokens."""
        below = self.input_tokens_below is None or input_tokens < self.input_tokens_below
        return self.input_tokens_min <= input_tokens and below


@dataclass(frozen=True, slots=True)
class ContractTerm:
    """The time in which one contract set an organization's price of a variant and tier: from
    `starts_at` until `ends_at`, None without end. Its next contract of the same begins at that end,
    or later."""

    organization_id: str
    variant_id: str
    tier: str
    starts_at: datetime
    ends_at: datetime | None


def schedules_in_force(
    organization: Organization | None,
    at: datetime,
    *,
    tier: str = ServiceTier.DEFAULT,
    variant_ids: Iterable[str] | None = None,
) -> dict[str, Schedule]:
    """Return the schedules that an organization (None: one without a contract) pays at a time, by
    variant id, of the given variants or of all.

    The newest contract decides: once it has ended, list prices apply, not an older contract.
    """
    rows = _published().filter(book__effective_at__lte=at, tier=tier)
    if variant_ids is not None:
        rows = rows.filter(variant_id__in=list(variant_ids))
    listed: dict[str, list[Price]] = {}
    own: dict[str, list[Price]] = {}
    for price in _newest(rows.filter(_open_to(organization))):
        book = price.book
        if book.ends_at is None or at < book.ends_at:
            prices = own if price.is_contract else listed
            prices.setdefault(price.variant_id, []).append(price)
    return {variant_id: tuple(bands) for variant_id, bands in (listed | own).items()}


def prices_in_force(
    organization: Organization | None, at: datetime, *, tier: str = ServiceTier.DEFAULT
) -> dict[str, Price]:
    """Return the base bands of the schedules in force."""
    found = schedules_in_force(organization, at, tier=tier)
    return {variant_id: bands[0] for variant_id, bands in found.items()}


def all_in_force(organization: Organization | None, at: datetime) -> list[Price]:
    """Return the bands of all tiers that an organization (None: one without a contract) pays at a
    time."""
    return [
        price
        for tier in ServiceTier.values
        for bands in schedules_in_force(organization, at, tier=tier).values()
        for price in bands
    ]


def price_validity(price_ids: Iterable[str]) -> dict[str, PriceValidity]:
    """Return the validity of the published ones of these prices, by price id."""
    with connection.cursor() as cursor:
        cursor.execute(VALIDITY, [list(price_ids)])
        return {row[0]: PriceValidity(*row) for row in cursor.fetchall()}


def contract_terms(start: datetime, end: datetime) -> list[ContractTerm]:
    """Return the contract terms of all organizations that overlap [start, end)."""
    with connection.cursor() as cursor:
        cursor.execute(TERMS, {"start": start, "end": end})
        return [ContractTerm(*row) for row in cursor.fetchall()]


def books() -> QuerySet[PriceBook]:
    """Return all price books, the newest first, for operators."""
    rows = PriceBook.objects.select_related("organization").order_by("-created_at")
    return rows.annotate(**{SUPERSEDED_AT: superseded_at()})


def book(book_id: str) -> PriceBook:
    """Return a price book. Raises ObjectNotFound."""
    return get_or_not_found(books(), "price book", id=book_id)


def price(price_id: str) -> Price:
    """Return a price of any book. Raises ObjectNotFound."""
    rows = Price.objects.select_related("book", "variant__model")
    return get_or_not_found(rows, "price", id=price_id)


def is_taken(organization_id: str | None, effective_at: datetime) -> bool:
    """Tell whether another price list, or another contract of the organization, takes effect at
    this time."""
    return PriceBook.objects.filter(
        published_at__isnull=False,
        cancelled_at__isnull=True,
        organization_id=organization_id,
        effective_at=effective_at,
    ).exists()


def prices(book: PriceBook) -> QuerySet[Price]:
    """Return the prices of a book, by variant, tier and band."""
    rows = Price.objects.filter(book=book).select_related("book", "variant__model")
    return rows.order_by(
        "variant__model__public_id", "variant__precision", "tier", "input_tokens_min"
    )


def price_in(book: PriceBook, price_id: str) -> Price:
    """Return a price of a book. Raises ObjectNotFound."""
    return get_or_not_found(prices(book), "price", id=price_id)


def price_of(book: PriceBook, variant: Variant, tier: str, input_tokens_min: int) -> Price | None:
    """Return the price that a book sets for a variant, tier and band."""
    same = prices(book).filter(variant=variant, tier=tier, input_tokens_min=input_tokens_min)
    return same.first()


def locked_book(book_id: str) -> PriceBook:
    """Return a price book with its row locked. Raises ObjectNotFound."""
    return get_or_not_found(
        PriceBook.objects.select_for_update(of=("self",)), "price book", id=book_id
    )


def _published() -> QuerySet[Price]:
    rows = Price.objects.filter(book__published_at__isnull=False, book__cancelled_at__isnull=True)
    return rows.select_related("book", "variant__model")


def _open_to(organization: Organization | None) -> Q:
    listed = Q(book__organization__isnull=True)
    return listed if organization is None else listed | Q(book__organization=organization)


def _newest(rows: QuerySet[Price]) -> QuerySet[Price]:
    """Return the bands of the newest book of each variant and organization, the base band first."""
    age = Window(
        DenseRank(),
        partition_by=[F("variant_id"), F("book__organization_id")],
        order_by=F("book__effective_at").desc(),
    )
    return rows.annotate(age=age).filter(age=1).order_by("input_tokens_min")
