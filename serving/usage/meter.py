"""The one meter: every request of every route becomes its usage event here and nowhere else."""

from datetime import datetime

import msgspec

from serving.contract.price import RATING, band_of, charge
from serving.contract.records import PriceRecord
from serving.contract.usage import BILLABLE, LeaseCharge, Outcome, UsageEvent
from serving.engine.events import NO_TOKENS, TokenUsage


class RequestTimings(msgspec.Struct, frozen=True):
    """Seconds of one request, from its arrival; TTFT is None when no token came."""

    queue_seconds: float = 0.0
    ttft_seconds: float | None = None
    total_seconds: float = 0.0


class MeterRecord(msgspec.Struct, frozen=True):
    """The facts of a request that are known before an engine works on it."""

    event_id: str
    gateway_id: str
    organization_id: str
    project_id: str
    key_id: str
    model_id: str
    deployment_id: str
    schedule: tuple[PriceRecord, ...]
    endpoint: str
    received_at: datetime
    streamed: bool
    client_request_id: str | None

    def price(self, tokens: TokenUsage) -> PriceRecord:
        """Return the band that so many input tokens fall into."""
        return band_of(self.schedule, tokens.input)


def price_of(metered: MeterRecord, tokens: TokenUsage, outcome: Outcome) -> int:
    """Return the charge in nanos: nothing unless the outcome is billable."""
    if outcome not in BILLABLE:
        return 0
    due = charge(
        metered.price(tokens),
        input_tokens=tokens.input,
        cached_input_tokens=tokens.cached_input,
        output_tokens=tokens.output,
    )
    return due.total_nanos


def make_event(
    metered: MeterRecord,
    *,
    outcome: Outcome,
    replica_id: str | None = None,
    tokens: TokenUsage = NO_TOKENS,
    timings: RequestTimings | None = None,
    charges: tuple[LeaseCharge, ...] = (),
) -> UsageEvent:
    """Return the one fact about a request."""
    timings, price = timings or RequestTimings(), metered.price(tokens)
    return UsageEvent(
        event_id=metered.event_id,
        gateway_id=metered.gateway_id,
        organization_id=metered.organization_id,
        project_id=metered.project_id,
        key_id=metered.key_id,
        model_id=metered.model_id,
        variant_id=price.variant_id,
        deployment_id=metered.deployment_id,
        price_id=price.price_id,
        endpoint=metered.endpoint,
        tier=price.tier,
        outcome=outcome,
        received_at=metered.received_at,
        replica_id=replica_id,
        charges=charges,
        input_tokens=tokens.input,
        cached_input_tokens=tokens.cached_input,
        output_tokens=tokens.output,
        reasoning_tokens=tokens.reasoning,
        streamed=metered.streamed,
        queue_seconds=timings.queue_seconds,
        ttft_seconds=timings.ttft_seconds,
        total_seconds=timings.total_seconds,
        client_request_id=metered.client_request_id,
        rating=RATING,
    )
