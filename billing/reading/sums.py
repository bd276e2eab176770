"""Sums over usage, alone, over time and by group: what selectors answer with."""

from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from billing.credit.selectors import LimitStatus
from billing.following import latency
from billing.metering.models import UsageCorrection, UsageEvent

Usage = UsageEvent | UsageCorrection
"""A request as it really was: its event, or the correction of one that was reported lost."""

NOT_REQUESTS = ("refused_by_engine", "hedged")
"""Outcomes of events that are no requests of their own."""
NO_TTFT = (0,) * latency.BUCKET_COUNT
MONEY = ("input_nanos", "cached_input_nanos", "output_nanos", "waived_nanos")


@dataclass(frozen=True, slots=True)
class UsageSums:
    """Sums over requests. `input_tokens` includes `cached_input_tokens`, `output_tokens` includes
    `reasoning_tokens`. Money is in nano-dollars by meter (input is its uncached part) and was
    charged, but for `waived_nanos`. TTFT is counted only where it was asked for."""

    completed_count: int = 0
    client_cancelled_count: int = 0
    engine_failed_count: int = 0
    timed_out_count: int = 0
    gateway_lost_count: int = 0
    refused_by_engine_count: int = 0
    hedged_count: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    input_nanos: int = 0
    cached_input_nanos: int = 0
    output_nanos: int = 0
    waived_nanos: int = 0
    ttft_counts: tuple[int, ...] = NO_TTFT

    def __add__(self, other: "UsageSums") -> "UsageSums":
        """Return the sums of both."""
        added = {name: getattr(self, name) + getattr(other, name) for name in MEASURES}
        return UsageSums(**added, ttft_counts=latency.add(self.ttft_counts, other.ttft_counts))

    def without_money(self) -> "UsageSums":
        """Return the same with nothing charged, for who may not see money."""
        nothing: dict[str, Any] = dict.fromkeys(MONEY, 0)
        return replace(self, **nothing)

    @property
    def charged_nanos(self) -> int:
        """The charge: the meters add up to it."""
        return self.input_nanos + self.cached_input_nanos + self.output_nanos

    @property
    def request_count(self) -> int:
        """Requests that a model took on, here as in lists and files. One that was refused is none,
        whoever refused it: what the gateway refuses leaves no event at all. The second try at one
        is a part of it."""
        return self.completed_count + self.client_cancelled_count + self.failed_count

    @property
    def failed_count(self) -> int:
        """Requests that failed on our side and were not charged."""
        return self.engine_failed_count + self.timed_out_count + self.gateway_lost_count

    @property
    def uncached_input_tokens(self) -> int:
        """Input tokens at the full input price."""
        return self.input_tokens - self.cached_input_tokens

    @property
    def ttft_p50_seconds(self) -> float | None:
        """Half of the first tokens came within this time; None without any."""
        return latency.percentile_seconds(self.ttft_counts, 50)

    @property
    def ttft_p95_seconds(self) -> float | None:
        """19 of 20 first tokens came within this time; None without any."""
        return latency.percentile_seconds(self.ttft_counts, 95)


MEASURES = tuple(one.name for one in fields(UsageSums) if one.name != "ttft_counts")
"""What is added up as it is; TTFT is added bucket by bucket."""


@dataclass(frozen=True, slots=True)
class UsagePoint:
    """The sums of one bucket (begins at `bucket_at`, UTC) and one group.

    `group` holds one id per dimension that was asked for, in that order; () when none was.
    """

    bucket_at: datetime
    group: tuple[str, ...]
    sums: UsageSums


@dataclass(frozen=True, slots=True)
class UsageGroup:
    """The sums of one group over the whole interval."""

    group: tuple[str, ...]
    sums: UsageSums


@dataclass(frozen=True, slots=True)
class Overview:
    """What an organization sees first: its money, exact at once, and its usage, as of a few
    seconds ago.

    `held_nanos` is set aside for requests at work; `available_nanos` is what new requests may
    still hold; `binding_limit` is the limit of which the least is left. All
    money is None, and nothing charged, for who may not see it. `days` has the last days' sums in
    order, `models` this month's by model, the dearest first; TTFT is of the last 24 hours.
    """

    balance_nanos: int | None
    held_nanos: int | None
    available_nanos: int | None
    binding_limit: LimitStatus | None
    latest: list[Usage]
    today: UsageSums
    month: UsageSums
    days: list[UsagePoint]
    models: list[UsageGroup]
    ttft_p50_seconds: float | None
    ttft_p95_seconds: float | None
