"""Prices as the data plane needs them."""

from typing import Any

from control.feed.services import FeedRecord
from control.prices.models import Price
from serving.contract.records import ContractPriceRecord, PriceRecord


def price_news(price: Price) -> FeedRecord:
    """Return what to publish of a price in a published book."""
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


def cancelled_news(price: Price) -> FeedRecord:
    """Return that a published price is no more."""
    return FeedRecord(_kind(price), price.id, None)


def _kind(price: Price) -> str:
    return "contract_price" if price.is_contract else "price"
