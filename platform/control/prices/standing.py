"""Whether a price that a usage event names was in force, for whom, and for how long a prompt."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Moment = Literal["not_yet", "in_force", "superseded", "cancelled"]


@dataclass(frozen=True, slots=True)
class PriceStanding:
    """A published price with the times of its book; the meters are nanos per million tokens.

    `superseded_at` is when the next book that prices the same variant and tier for the same
    organization (None: for everybody) takes effect, or when the contract ends. The band takes
    requests of `input_tokens_min` input tokens up to, not including, `input_tokens_below`.
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

    def at(self, moment: datetime) -> Moment:
        """Return how the price stood at a moment; a cancelled one was never in force."""
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
        """Whether a request with so many input tokens falls into the band."""
        below = self.input_tokens_below is None or input_tokens < self.input_tokens_below
        return self.input_tokens_min <= input_tokens and below


@dataclass(frozen=True, slots=True)
class ContractTerm:
    """When one contract decided what an organization pays for a variant and tier: from
    `starts_at` until `ends_at`, None for ever. Another one of the same begins where it ends, or
    later."""

    organization_id: str
    variant_id: str
    tier: str
    starts_at: datetime
    ends_at: datetime | None
