"""The usage event: one immutable fact per request. Never any content.

`POST /internal/v1/usage-events`, answered after commit only; anything but that answer means
"send again". The same id with the same bytes is a duplicate; with other bytes it is an alarm.
"""

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from serving.contract import SCHEMA
from serving.contract.codec import bad_value
from serving.contract.units import (
    WRITTEN_TIER,
    At,
    Id,
    Label,
    Nanos,
    Seconds,
    Tokens,
    WrittenTier,
)

Outcome = Literal[
    "completed",
    "client_cancelled",
    "engine_failed",
    "timed_out",
    "gateway_lost",
    "refused_by_engine",
    "hedged",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
BILLABLE: frozenset[Outcome] = frozenset({"completed", "client_cancelled"})
"""The rest is our fault (waived, tokens recorded where known), no work at all, or `hedged`: one of
two tries at a request, which the other outran."""

EVENTS_MAX = 5_000
"""The most events in one batch."""
KEPT_SECONDS = 24 * 3600
"""How long a gateway keeps what was acknowledged, to send it again to a database that lacks it."""


class LeaseCharge(msgspec.Struct, frozen=True, gc=False):
    """What this event takes from one lease of one budget in the request's chain."""

    budget_id: Label
    lease_id: Label
    charged_nanos: Nanos


class UsageEvent(msgspec.Struct, frozen=True, gc=False):
    """One request's usage. `event_id` (UUIDv7, the gateway's) is the only billing key.

    `input_tokens` includes `cached_input_tokens`; `output_tokens` includes `reasoning_tokens`.
    `client_request_id` is a label and nothing else. It can be part of no cycle, so the garbage
    collector need not look at it (`gc=False`, here and in what billing makes of it): a quarter of
    ingest's time otherwise.
    """

    event_id: Label
    gateway_id: Label
    organization_id: Label
    project_id: Label
    key_id: Label
    model_id: Label
    variant_id: Label
    deployment_id: Label
    price_id: Label
    endpoint: Label
    tier: WrittenTier
    outcome: Outcome
    received_at: At
    replica_id: Label | None = None
    charges: tuple[LeaseCharge, ...] = ()
    input_tokens: Tokens = 0
    cached_input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    reasoning_tokens: Tokens = 0
    streamed: bool = False
    queue_seconds: Seconds = 0.0
    ttft_seconds: Seconds | None = None
    total_seconds: Seconds = 0.0
    client_request_id: Annotated[str, Meta(max_length=128)] | None = None
    rating: Annotated[int, Meta(ge=1)] = 1
    """The version of the rule the gateway charged by (`price.RATING`); events before it say 1."""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.tier in WRITTEN_TIER:
            msgspec.structs.force_setattr(self, "tier", WRITTEN_TIER[self.tier])
        cached, reasoning = self.cached_input_tokens, self.reasoning_tokens
        if cached > self.input_tokens:
            whole = f"at most input_tokens, {self.input_tokens}"
            raise bad_value("cached_input_tokens", cached, whole)
        if reasoning > self.output_tokens:
            whole = f"at most output_tokens, {self.output_tokens}"
            raise bad_value("reasoning_tokens", reasoning, whole)

    @property
    def billable(self) -> bool:
        """Whether the customer pays; otherwise the charge is waived."""
        return self.outcome in BILLABLE


class UsageBatch(msgspec.Struct, frozen=True):
    """Events on their way; each stays raw so that a poison row's neighbours land.

    `resent` says that another database than that of `lineage` acknowledged these events before, and
    `is_last` that the gateway keeps no more such events.
    """

    gateway_id: Id
    events: Annotated[tuple[msgspec.Raw, ...], Meta(max_length=EVENTS_MAX)]
    sent_at: At | None = None
    lineage: str = ""
    resent: bool = False
    is_last: bool = False
    schema: int = SCHEMA


class DeadLetter(msgspec.Struct, frozen=True):
    """An event that billing could not book, kept for a person to look at."""

    event_id: str
    reason: str


class UsageReceipt(msgspec.Struct, frozen=True):
    """Billing has committed the batch. The gateway keeps it for a day: another `lineage` than
    before means that the database was restored, and everything kept is sent again."""

    accepted: int
    duplicates: int
    lineage: str = ""
    dead_lettered: tuple[DeadLetter, ...] = ()
