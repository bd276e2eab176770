"""What a request asks of a pool: whose it is, how urgent, and about how much; and why it gets none.

PoolError
├── NoReadyReplica       no replica of the deployment is ready; in `seconds` one should be, if any
├── NoHedgeSlot          a hedged attempt finds no slot, or is not allowed
├── PoolOverloaded       too much waits, or it would wait for too long: come back in `seconds`
│   └── TenantQueueFull  of the organization's own
└── RequestQuarantined   such requests broke engines: refused for `seconds` more
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from serving.contract.price import MeterPrices
from serving.contract.units import Tier
from serving.engine.events import TokenUsage
from serving.pool.prefix_history import Blocks

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

    def __init__(self, cause: Cause, seconds: float = 0.0) -> None:
        super().__init__(cause)
        self.cause = cause
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


@dataclass(frozen=True, slots=True)
class TokenWeights:
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


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """`sequences` is the slots it takes: one for each sequence that it has an engine make.

    `input_tokens` are estimated, by `prompt_bytes` where those are known. `output_tokens_max` is
    for all of its sequences together. It waits `seconds_max` at most. `blocks` are what its prompt
    begins with.
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
    blocks: Blocks = ()

    @property
    def fingerprint(self) -> RequestFingerprint:
        """Whose it is, and of what kind: what is suspected if it breaks an engine."""
        return RequestFingerprint(self.organization_id, self.feature)
