"""A receipt on the wire: tokens times price by meter, and how long it took."""

from typing import Any

from rest_framework import serializers

from billing.reading import selectors
from billing.reading.exports import plain_dollars, utc_text
from billing.reading.receipts import Receipt


class ReceiptLineSerializer(serializers.Serializer[Any]):
    """Tokens of one meter at their price; `input` is the part that was not cached."""

    meter = serializers.ChoiceField(["input", "cached_input", "output"])
    tokens = serializers.IntegerField()
    nanos_per_million_tokens = serializers.IntegerField(allow_null=True)
    amount_nanos = serializers.IntegerField(allow_null=True)


class ReceiptUsageSerializer(serializers.Serializer[Any]):
    """The tokens of a request. `input_tokens` includes `cached_input_tokens`, `output_tokens`
    includes `reasoning_tokens`."""

    input_tokens = serializers.IntegerField()
    cached_input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    reasoning_tokens = serializers.IntegerField()


class ReceiptPriceSerializer(serializers.Serializer[Any]):
    """The price that was in force: a band of a variant and tier in a dated book, which never
    changes."""

    id = serializers.CharField()
    book_id = serializers.CharField()
    book = serializers.CharField()
    effective_at = serializers.CharField()
    service_tier = serializers.CharField()
    input_tokens_min = serializers.IntegerField()


class TimingsSerializer(serializers.Serializer[Any]):
    """How long a request waited, until its first token, and in all."""

    queue_seconds = serializers.FloatField()
    ttft_seconds = serializers.FloatField(allow_null=True)
    total_seconds = serializers.FloatField()


class ReceiptSerializer(serializers.Serializer[Any]):
    """One request: the amounts of its lines add up to what was charged, or to what was waived.
    Amounts are null for roles that may not see money."""

    object = serializers.CharField()
    id = serializers.CharField()
    received_at = serializers.CharField()
    project_id = serializers.CharField()
    api_key_id = serializers.CharField()
    model = serializers.CharField()
    service_tier = serializers.CharField()
    endpoint = serializers.CharField()
    outcome = serializers.CharField()
    streamed = serializers.BooleanField()
    client_request_id = serializers.CharField(allow_null=True)
    usage = ReceiptUsageSerializer()
    lines = ReceiptLineSerializer(many=True)
    charged_nanos = serializers.IntegerField(allow_null=True)
    charged_usd = serializers.CharField(allow_null=True)
    waived_nanos = serializers.IntegerField(allow_null=True)
    price = ReceiptPriceSerializer(allow_null=True)
    rating = serializers.IntegerField(help_text="The version of the rule that rounds.")
    timings = TimingsSerializer()


def body_of(receipt: Receipt) -> dict[str, Any]:
    """Return a receipt as JSON has it."""
    event, caller, supply = receipt.event, receipt.event.caller, receipt.event.supply
    names = selectors.variant_names([supply.variant_id])
    return {
        "object": "request",
        "id": str(event.event_id),
        "received_at": utc_text(event.received_at),
        "project_id": caller.project_id,
        "api_key_id": caller.key_id,
        "model": names.get(supply.variant_id, supply.variant_id),
        "service_tier": supply.tier,
        "endpoint": supply.endpoint,
        "outcome": event.outcome,
        "streamed": event.streamed,
        "client_request_id": event.client_request_id,
        "usage": ReceiptUsageSerializer(event).data,
        "lines": [ReceiptLineSerializer(line).data for line in receipt.lines],
        "charged_nanos": event.charged_nanos if receipt.has_money else None,
        "charged_usd": plain_dollars(event.charged_nanos) if receipt.has_money else None,
        "waived_nanos": event.waived_nanos if receipt.has_money else None,
        "price": _price(receipt),
        "rating": event.rating,
        "timings": TimingsSerializer(event).data,
    }


def _price(receipt: Receipt) -> dict[str, Any] | None:
    price = receipt.price
    if price is None or price.book.effective_at is None:
        return None
    return {
        "id": price.id,
        "book_id": price.book_id,
        "book": price.book.name,
        "effective_at": utc_text(price.book.effective_at),
        "service_tier": price.tier,
        "input_tokens_min": price.input_tokens_min,
    }
