"""What a request asks of a pool: whose it is, how urgent, and about how much."""

from dataclasses import dataclass

from serving.contract.price import MeterPrices
from serving.contract.units import Tier
from serving.engine.events import TokenUsage
from serving.pool.prefixes import Blocks
from serving.pool.suspicion import Fingerprint


@dataclass(frozen=True, slots=True)
class Rates:
    """What other tokens weigh, in input tokens. A discount on all of them buys no more turns."""

    cached_input: float = 0.5
    output: float = 4.0

    @classmethod
    def of(cls, meters: MeterPrices) -> "Rates":
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


USUAL = Rates()


@dataclass(frozen=True, slots=True)
class Ticket:
    """`width` is the slots it takes: one for each sequence that it has an engine make.

    `input_tokens` are estimated, by `prompt_bytes` where those are known. `output_tokens_max` is
    for all of its sequences together. It waits `seconds_max` at most. `blocks` are what its prompt
    begins with.
    """

    organization_id: str
    weight: int = 1
    tier: Tier = "default"
    feature: str = "plain"
    width: int = 1
    input_tokens: int = 1
    prompt_bytes: int = 0
    output_tokens_max: int = 0
    rates: Rates = USUAL
    seconds_max: float = 30.0
    blocks: Blocks = ()

    @property
    def fingerprint(self) -> Fingerprint:
        """Whose it is, and of what kind: what is suspected if it breaks an engine."""
        return Fingerprint(self.organization_id, self.feature)
