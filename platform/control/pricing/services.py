"""Operators' changes to price books: draft, set prices, publish once, cancel before the effective
time."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from control.audit import services as audit
from control.catalog.models import Variant
from control.db.row_changes import apply_changes, create_row, snapshot
from control.errors import Conflict, InvalidValue
from control.feed.services import FeedRecord, publish
from control.organizations.models import Organization
from control.permissions import Actor, Permission, require_operator
from control.pricing import selectors
from control.pricing.models import BookState, Price, PriceBook, ServiceTier
from control.pricing.price_changes import changes_in, require_confirmation
from control.versions import lock_edits
from serving.contract.records import ContractPriceRecord, PriceRecord

METERS = ("input_nanos", "cached_input_nanos", "output_nanos")
BOOK_FIELDS = frozenset({"name", "organization", "effective_at", "ends_at"})


@transaction.atomic
def draft_book(
    *,
    actor: Actor,
    name: str,
    organization: Organization | None = None,
    effective_at: datetime | None = None,
    ends_at: datetime | None = None,
) -> PriceBook:
    """Create a draft price book, which has no effect until it is published.

    With an organization it is a contract of that organization, until `ends_at` where given.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    book = PriceBook(
        name=name, organization=organization, effective_at=effective_at, ends_at=ends_at
    )
    create_row(book)
    _record(actor, "price_book.created", book, **snapshot(book, BOOK_FIELDS))
    return book


@transaction.atomic
def update_book(*, actor: Actor, book: PriceBook, changes: Mapping[str, Any]) -> PriceBook:
    """Change BOOK_FIELDS of a draft. Raises Conflict once the book is published."""
    require_operator(actor, Permission.FINANCE_WRITE)
    book = _edited_draft(book)
    if not set(changes) <= BOOK_FIELDS:
        raise InvalidValue(f"Only {', '.join(sorted(BOOK_FIELDS))} can be set.")
    if differences := apply_changes(book, changes):
        _record(actor, "price_book.updated", book, **differences)
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
    tier: str = ServiceTier.DEFAULT,
    input_tokens_min: int = 0,
) -> Price:
    """Set the price of a variant in a draft, in nano-dollars per million tokens, for requests with
    at least `input_tokens_min` input tokens.

    Raises Conflict once the book is published, InvalidValue where cached input costs more than
    input.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    book = _edited_draft(book)
    meters = {
        "input_nanos": input_nanos,
        "cached_input_nanos": cached_input_nanos,
        "output_nanos": output_nanos,
    }
    price = selectors.price_of(book, variant, tier, input_tokens_min)
    before = snapshot(price, meters) if price else None
    if price is None:
        price = Price(
            book=book, variant=variant, tier=tier, input_tokens_min=input_tokens_min, **meters
        )
        create_row(price)
    else:
        apply_changes(price, meters)
    _record(actor, "price_book.price_set", book, **_named(price), before=before, after=meters)
    return price


@transaction.atomic
def remove_price(*, actor: Actor, price: Price) -> None:
    """Remove a price from a draft: the earlier price stays in force for its variant."""
    require_operator(actor, Permission.FINANCE_WRITE)
    book = _edited_draft(price.book)
    before = snapshot(price, METERS)
    _record(actor, "price_book.price_removed", book, **_named(price), before=before)
    price.delete()


@transaction.atomic
def publish_book(
    *,
    actor: Actor,
    book: PriceBook,
    effective_at: datetime | None = None,
    confirmation: str = "",
) -> PriceBook:
    """Put a book's prices in force from `effective_at`, or now; the book never changes again.

    Raises InvalidValue for a time in the past or an incomplete book, Conflict if it is already
    published or another book takes effect at that time, and ConfirmationRequired where prices look
    mis-keyed and `confirmation` is not the phrase that the error names.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    book, now = _draft(book), timezone.now()
    prices = list(selectors.prices(book))
    check_complete(prices)
    _check_effective_at(book, effective_at or now, now)
    changes = changes_in(book, prices, effective_at or now)
    require_confirmation(book, changes, confirmation)
    book.effective_at, book.published_at = effective_at or now, now
    book.published_by_id = actor.user_id
    book.save(update_fields=["effective_at", "published_at", "published_by"])
    confirmed = {"confirmation": confirmation} if confirmation else {}
    moment = book.effective_at.isoformat()
    _record(actor, "price_book.published", book, effective_at=moment, **confirmed)
    for price in prices:
        price.book = book
    publish(price_record(price) for price in prices)
    return book


@transaction.atomic
def cancel_book(*, actor: Actor, book: PriceBook) -> PriceBook:
    """Cancel a published book before it takes effect; the earlier prices stay in force.

    Raises Conflict for a draft, a cancelled book, and a book that has taken effect.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    book, now = selectors.locked_book(book.id), timezone.now()
    if (state := book.state(now)) != BookState.SCHEDULED:
        raise Conflict(f"{book.name} is {state}: only a scheduled book can be cancelled.")
    book.cancelled_at, book.cancelled_by_id = now, actor.user_id
    book.save(update_fields=["cancelled_at", "cancelled_by"])
    _record(actor, "price_book.cancelled", book)
    publish(cancelled_price_record(price) for price in selectors.prices(book))
    return book


def _edited_draft(book: PriceBook) -> PriceBook:
    lock_edits(book.id)
    return _draft(book)


def _draft(book: PriceBook) -> PriceBook:
    book = selectors.locked_book(book.id)
    if book.state(timezone.now()) != BookState.DRAFT:
        raise Conflict(f"{book.name} is published and never changes. Create another draft.")
    return book


def check_complete(prices: Collection[Price]) -> None:
    """Check that a book has prices, and a base band for each other band: shorter requests would
    have no price. Raises InvalidValue."""
    if not prices:
        raise InvalidValue("The price book has no prices.")
    based = {(price.variant_id, price.tier) for price in prices if price.input_tokens_min == 0}
    for price in prices:
        if (price.variant_id, price.tier) not in based:
            raise InvalidValue(f"{price} has no base band: price it from 0 input tokens too.")


def _check_effective_at(book: PriceBook, effective_at: datetime, now: datetime) -> None:
    if effective_at < now:
        raise InvalidValue("effective_at must not be in the past.", param="effective_at")
    if book.ends_at is not None and book.ends_at <= effective_at:
        raise InvalidValue("A contract ends after it takes effect.", param="ends_at")
    if selectors.is_taken(book.organization_id, effective_at):
        raise Conflict("Another price book takes effect at that moment.", param="effective_at")


def _named(price: Price) -> dict[str, Any]:
    """Return what the price applies to, for the audit log."""
    return {
        "variant": str(price.variant),
        "tier": price.tier,
        "input_tokens_min": price.input_tokens_min,
    }


def _record(actor: Actor, action: str, book: PriceBook, **details: Any) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="price_book",
        target_id=book.id,
        target_name=book.name,
        details=details,
    )


def price_record(price: Price) -> FeedRecord:
    """Return the feed record of a price in a published book. Raises ValueError for a draft's."""
    if price.book.effective_at is None:
        raise ValueError(f"{price.id} belongs to a draft, which is not published")
    fields: dict[str, Any] = {
        "price_id": price.id,
        "variant_id": price.variant_id,
        "tier": price.tier,
        "input_tokens_min": price.input_tokens_min,
        "input_nanos": price.input_nanos,
        "cached_input_nanos": price.cached_input_nanos,
        "output_nanos": price.output_nanos,
        "effective_at": price.book.effective_at,
    }
    if price.book.organization_id is None:
        return FeedRecord(_kind(price), price.id, PriceRecord(**fields))
    own = ContractPriceRecord(
        **fields, organization_id=price.book.organization_id, ends_at=price.book.ends_at
    )
    return FeedRecord(_kind(price), price.id, own)


def cancelled_price_record(price: Price) -> FeedRecord:
    """Return the feed record that deletes a published price."""
    return FeedRecord(_kind(price), price.id, None)


def _kind(price: Price) -> str:
    return "contract_price" if price.is_contract else "price"
