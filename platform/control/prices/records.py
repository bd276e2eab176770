"""Prices as the data plane needs them."""

from control.prices.models import Price
from control.publish.services import News
from serving.contract.records import PriceRecord


def price_news(price: Price) -> News:
    """Return what to publish of a price in a published book."""
    if price.book.effective_at is None:
        raise ValueError(f"{price.id} belongs to a draft, which is not published")
    record = PriceRecord(
        price_id=price.id,
        variant_id=price.variant_id,
        tier=price.tier,  # type: ignore[arg-type]
        input_nanos=price.input_nanos,
        cached_input_nanos=price.cached_input_nanos,
        output_nanos=price.output_nanos,
        effective_at=price.book.effective_at,
    )
    return News("price", price.id, record)
