"""Questions about prices. A price is in force from its book's effective time until the next
book that prices the same variant and tier."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import QuerySet

from control.catalog.models import Variant
from control.errors import NotFound
from control.prices.models import Price, PriceBook, Tier


def prices_in_force(
    at: datetime, *, variant_ids: Iterable[str] | None = None, tier: str = Tier.STANDARD
) -> dict[str, Price]:
    """Return the price in force at a moment by variant id, of the given variants or of all."""
    rows = _published().filter(book__effective_at__lte=at, tier=tier)
    if variant_ids is not None:
        rows = rows.filter(variant_id__in=list(variant_ids))
    newest = rows.order_by("variant_id", "-book__effective_at", "-book__published_at")
    return {price.variant_id: price for price in newest.distinct("variant_id")}


def price_in_force(variant_id: str, at: datetime, *, tier: str = Tier.STANDARD) -> Price | None:
    """Return the price of a variant in force at a moment."""
    return prices_in_force(at, variant_ids=[variant_id], tier=tier).get(variant_id)


def price(price_id: str) -> Price | None:
    """Return a published price by its id."""
    return _published().filter(id=price_id).first()


def books() -> QuerySet[PriceBook]:
    """Return all price books, the newest first, for operators."""
    return PriceBook.objects.order_by("-created_at")


def is_taken(effective_at: datetime) -> bool:
    """Tell whether a published book takes effect at just this moment."""
    published = PriceBook.objects.filter(published_at__isnull=False)
    return published.filter(effective_at=effective_at).exists()


def prices(book: PriceBook) -> QuerySet[Price]:
    """Return the prices of a book, by variant and tier."""
    rows = Price.objects.filter(book=book).select_related("book", "variant__model")
    return rows.order_by("variant__model__public_id", "variant__precision", "tier")


def price_of(book: PriceBook, variant: Variant, tier: str) -> Price | None:
    """Return the price that a book sets for a variant and tier."""
    return prices(book).filter(variant=variant, tier=tier).first()


def locked_book(book_id: str) -> PriceBook:
    """Return a price book with its row locked. Raises NotFound."""
    found = PriceBook.objects.select_for_update(of=("self",)).filter(id=book_id).first()
    if found is None:
        raise NotFound("There is no such price book.")
    return found


def _published() -> QuerySet[Price]:
    rows = Price.objects.filter(book__published_at__isnull=False)
    return rows.select_related("book", "variant__model")
