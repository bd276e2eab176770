"""What a request asks of a pool: whose it is, how urgent, about how much, and what that costs; and
why it gets none.

PoolError
├── NoReadyReplica       no replica of the deployment is ready; in `seconds` one should be, if any
├── NoHedgeSlot          a hedged attempt finds no slot, or is not allowed
├── PoolOverloaded       too much waits, or it would wait for too long: come back in `seconds`
│   └── TenantQueueFull  of the organization's own
└── RequestQuarantined   such requests broke engines: refused for `seconds` more
"""

from typing import Literal, NamedTuple

import msgspec

from serving.contract.price import MeterPrices
from serving.contract.slot_shares import NEVER_PAID
from serving.contract.units import Tier
from serving.engine.events import TokenUsage
from serving.pool.prefix_history import Blocks, PromptPrefix

Cause = Literal["pressed", "queue_full", "outweighed", "too_long", "waited", "organization_full"]
"""pressed            too many tokens wait or run for a request of its tier
queue_full         too much waits in all, and no organization has more waiting than this one
outweighed         it waited, and was given up for one of an organization with less waiting
too_long           its turn would come after its deadline
waited             its deadline came before its turn
organization_full  its organization has too much waiting
"""


class PoolError(Exception):
    """No slot for this request."""


class NoReadyReplica(PoolError):
    """No replica of the deployment is ready. Where one `is_coming`, it should be in `seconds`;
    None: nobody knows."""

    def __init__(
        self, deployment_id: str, seconds: float | None = None, *, is_coming: bool = False
    ) -> None:
        super().__init__(deployment_id)
        self.seconds = seconds
        self.is_coming = is_coming


class NoHedgeSlot(PoolError):
    """No replica has a place to spare for a second try, or too many have had one."""


class PoolOverloaded(PoolError):
    """It cannot wait here; in `seconds` there should be room again."""

    def __init__(self, reason: Cause, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.seconds = seconds


class TenantQueueFull(PoolOverloaded):
    """The organization's own requests fill what it may have waiting."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__("organization_full", seconds)


class RequestQuarantined(PoolError):
    """Such requests broke engines; they are refused for `seconds` more."""

    def __init__(self, seconds: float) -> None:
        super().__init__("quarantined")
        self.seconds = seconds


class RequestFingerprint(NamedTuple):
    """Whose request, and of what kind."""

    organization_id: str
    feature: str


class TokenWeights(msgspec.Struct, frozen=True):
    """What other tokens weigh, in input tokens. A discount on all of them buys no more turns."""

    cached_input: float = 0.5
    output: float = 4.0

    @classmethod
    def of(cls, meters: MeterPrices) -> "TokenWeights":
        """Return them by what tokens are sold at; where input is free, the usual ones."""
        if not meters.input_nanos:
            return cls()
        return cls(
            meters.cached_input_nanos / meters.input_nanos,
            meters.output_nanos / meters.input_nanos,
        )

    def cost(self, tokens: TokenUsage) -> float:
        """Return what tokens weigh together."""
        uncached = tokens.input - tokens.cached_input
        return uncached + tokens.cached_input * self.cached_input + tokens.output * self.output


USUAL = TokenWeights()


HALF_LIFE_SECONDS = 60.0
"""After which an ended request counts half in the mean cost of a slot-second."""
KEPT_MIN = 1e-6
RECENT_PACE = 0.05
"""How much the latest answer counts in the pace of a sequence."""


class SlotSecondCost:
    """What a second of a slot costs in a pool: the mean of the requests that ended of late, by
    their slot-seconds, and no less than the output that a sequence makes in it. Organizations that
    hold slots and make little lower the mean; the pace of a sequence is the engine's."""

    def __init__(self) -> None:
        self.mean = 0.0
        """In uncached input tokens."""
        self._cost = 0.0
        self._slot_seconds = 0.0
        self._at = 0.0
        self.pace = 0.0
        """Of one sequence, in output tokens a second."""

    def at(self, rates: TokenWeights) -> float:
        """Return it in uncached input tokens; 0 before anything ended."""
        return max(self.mean, rates.output * self.pace)

    def record(self, cost: float, slot_seconds: float, now: float) -> None:
        """Take in what the tokens of a request cost that ended."""
        if slot_seconds <= 0.0:
            return
        kept = max(KEPT_MIN, 0.5 ** (max(0.0, now - self._at) / HALF_LIFE_SECONDS))
        self._cost = kept * self._cost + cost
        self._slot_seconds = kept * self._slot_seconds + slot_seconds
        self._at, self.mean = now, self._cost / self._slot_seconds

    def record_pace(self, tokens_a_second: float) -> None:
        """Take in how fast an answer of one sequence was made."""
        known = self.pace
        self.pace += (RECENT_PACE if known else 1.0) * (tokens_a_second - known)


class SlotRequest(msgspec.Struct, frozen=True):
    """`sequences` is the slots it takes: one for each sequence that it has an engine make.

    `input_tokens` are estimated, by `prompt_bytes` where those are known. `output_tokens_max` is
    for all of its sequences together. It waits `seconds_max` at most. `prefix_blocks` are what its
    prompt begins with.
    """

    organization_id: str
    weight: int = 1
    tier: Tier = "default"
    feature: str = "plain"
    sequences: int = 1
    input_tokens: int = 1
    prompt_bytes: int = 0
    output_tokens_max: int = 0
    rates: TokenWeights = USUAL
    seconds_max: float = 30.0
    prefix_blocks: Blocks = ()
    is_paying: bool = True

    @property
    def tenant_id(self) -> str:
        """Whose share of the pool it counts for: its organization's, or that of all organizations
        which never paid."""
        return self.organization_id if self.is_paying else NEVER_PAID

    @property
    def prefix(self) -> PromptPrefix:
        """What its prompt begins with, and whose it is."""
        return PromptPrefix(self.tenant_id, self.prefix_blocks)

    @property
    def fingerprint(self) -> RequestFingerprint:
        """Whose it is, and of what kind: what is suspected if it breaks an engine."""
        return RequestFingerprint(self.organization_id, self.feature)
