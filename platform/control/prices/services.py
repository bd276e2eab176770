"""What operators do to price books: draft, set prices, publish once."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from control.actor import Actor
from control.audit import services as audit
from control.catalog.models import Variant
from control.editing import create, edit
from control.errors import Conflict, Invalid
from control.prices import selectors
from control.prices.models import Price, PriceBook, Tier
from control.prices.records import price_news
from control.publish.services import publish
from control.tenants.permissions import require_operator

BOOK_FIELDS = frozenset({"name", "effective_at"})


@transaction.atomic
def draft_book(*, actor: Actor, name: str, effective_at: datetime | None = None) -> PriceBook:
    """Begin a price book, which is worth nothing before it is published."""
    require_operator(actor)
    book = PriceBook(name=name, effective_at=effective_at)
    create(book)
    _record(actor, "price_book.draft", book, name=name)
    return book


@transaction.atomic
def update_book(*, actor: Actor, book: PriceBook, changes: Mapping[str, Any]) -> PriceBook:
    """Change BOOK_FIELDS of a draft. Raises Conflict once the book is published."""
    require_operator(actor)
    book = _draft(book)
    if not set(changes) <= BOOK_FIELDS:
        raise Invalid(f"Only {', '.join(sorted(BOOK_FIELDS))} can be set.")
    if differences := edit(book, changes):
        _record(actor, "price_book.update", book, **differences)
    return book


@transaction.atomic
def set_price(
    *,
    actor: Actor,
    book: PriceBook,
    variant: Variant,
    input_nanos: int,
    cached_input_nanos: int,
    output_nanos: int,
    tier: str = Tier.STANDARD,
) -> Price:
    """Set what a variant costs in a draft, in nano-dollars per million tokens.

    Raises Conflict once the book is published, Invalid where cached input is dearer than input.
    """
    require_operator(actor)
    book = _draft(book)
    meters = {
        "input_nanos": input_nanos,
        "cached_input_nanos": cached_input_nanos,
        "output_nanos": output_nanos,
    }
    price = selectors.price_of(book, variant, tier)
    if price is None:
        price = Price(book=book, variant=variant, tier=tier, **meters)
        create(price)
    else:
        edit(price, meters)
    _record(actor, "price_book.set_price", book, variant=str(variant), tier=tier, **meters)
    return price


@transaction.atomic
def remove_price(*, actor: Actor, price: Price) -> None:
    """Take a price out of a draft: the price before stays in force for its variant."""
    require_operator(actor)
    book = _draft(price.book)
    _record(actor, "price_book.remove_price", book, variant=str(price.variant), tier=price.tier)
    price.delete()


@transaction.atomic
def publish_book(
    *, actor: Actor, book: PriceBook, effective_at: datetime | None = None
) -> PriceBook:
    """Put a book's prices in force from `effective_at`, or now; it never changes again.

    Raises Invalid for a moment in the past or a book without prices, Conflict when it is
    published already.
    """
    require_operator(actor)
    book = _draft(book)
    prices = list(selectors.prices(book))
    now = timezone.now()
    if not prices:
        raise Invalid("The price book has no prices.")
    if effective_at is not None and effective_at < now:
        raise Invalid("effective_at must not be in the past.", param="effective_at")
    if selectors.is_taken(effective_at or now):
        raise Conflict("Another price book takes effect at that moment.", param="effective_at")
    book.effective_at = effective_at or now
    book.published_at = now
    book.published_by_id = actor.user_id
    book.save(update_fields=["effective_at", "published_at", "published_by"])
    _record(actor, "price_book.publish", book, effective_at=book.effective_at.isoformat())
    for price in prices:
        price.book = book
    publish(price_news(price) for price in prices)
    return book


def _draft(book: PriceBook) -> PriceBook:
    book = selectors.locked_book(book.id)
    if book.is_published:
        raise Conflict(f"{book.name} is published and never changes: draft another one.")
    return book


def _record(actor: Actor, action: str, book: PriceBook, **details: Any) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="price_book",
        target_id=book.id,
        details=details,
    )
