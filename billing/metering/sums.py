"""What selectors answer with: sums over usage, points of a series, the overview, a receipt."""

from dataclasses import dataclass, fields
from datetime import datetime

from billing.metering import latency
from billing.metering.models import UsageEvent
from billing.rating.rate import Line
from control.prices.models import Price

NO_TTFT = (0,) * latency.BUCKET_COUNT


@dataclass(frozen=True, slots=True)
class UsageSums:
    """Sums over requests. `input_tokens` includes `cached_input_tokens`, `output_tokens`
    includes `reasoning_tokens`; money is in nano-dollars; `waived_nanos` was not charged."""

    request_count: int = 0
    completed_count: int = 0
    client_cancelled_count: int = 0
    engine_failed_count: int = 0
    timed_out_count: int = 0
    gateway_lost_count: int = 0
    refused_by_engine_count: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    charged_nanos: int = 0
    waived_nanos: int = 0
    ttft_counts: tuple[int, ...] = NO_TTFT

    def __add__(self, other: "UsageSums") -> "UsageSums":
        """Return the sums of both."""
        names = [one.name for one in fields(self) if one.name != "ttft_counts"]
        added = {name: getattr(self, name) + getattr(other, name) for name in names}
        return UsageSums(**added, ttft_counts=latency.add(self.ttft_counts, other.ttft_counts))

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
    """What an organization sees first: its money, and its usage of this UTC day and month.

    `held_nanos` is set aside for requests at work; `available_nanos` is what new requests may
    still hold, None without any limit.
    """

    balance_nanos: int
    held_nanos: int
    available_nanos: int | None
    today: UsageSums
    month: UsageSums


@dataclass(frozen=True, slots=True)
class Receipt:
    """One request and why it cost what it cost: the lines, added and rounded once to nanos, are
    the event's `charged_nanos`, or its `waived_nanos`."""

    event: UsageEvent
    price: Price
    lines: tuple[Line, ...]
