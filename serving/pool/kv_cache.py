"""What running requests probably hold of an engine's KV cache, and what the fleet grants of it."""

from dataclasses import dataclass
from typing import NamedTuple

from serving.contract.slot_shares import KvGrant
from serving.pool.prefix_history import Blocks
from serving.pool.tier_queue import CHARGE_SECONDS, ServiceCharge

GROWTH_TOKENS = 256
"""Of a sequence beyond what it has made: until its answer is looked at again it makes fewer."""


class KvNeed(NamedTuple):
    """What a request probably takes of a KV cache: `tokens` of prompt and answer, of which each of
    its `blocks`, the beginning of the prompt, is `block_tokens`."""

    tokens: int
    output_tokens: int = 0
    blocks: Blocks = ()
    block_tokens: int = 0


@dataclass(slots=True)
class KvHolding:
    """What one running request holds beside its blocks, `output_tokens` of it for its answer."""

    tokens: int
    output_tokens: int
    blocks: Blocks


@dataclass(slots=True)
class KvBlock:
    """A part of prompts, and how many running requests hold it."""

    tokens: int
    holders: int = 0


class KvUsage:
    """What this gateway's requests probably hold of one engine's KV cache: `tokens` in all.

    A request counts with its whole prompt from the start, and with an answer as long as its
    organization's are on the mean: counting the longest allowed one would leave most of the cache
    empty, since clients rarely bound their answers. One that grows beyond that is counted by what
    it has made. The beginning of a prompt that requests share counts once, as the engine keeps it.

    Of that the fleet lets it have the `share`; None where it divides nothing. A `permit` is so many
    tokens more for one request that is larger than the share was when the permit was asked for.
    Once that has begun the permit is `permit_used`, and gone when it has ended.
    """

    __slots__ = (
        *("_blocks", "_permit_user", "_seen_at", "holdings", "is_taken", "permit"),
        *("permit_above", "permit_used", "share", "tokens"),
    )

    def __init__(self) -> None:
        self.tokens = 0
        self.share: int | None = None
        self.permit = self.permit_used = 0
        self.is_taken = False
        """Whether another gateway has the permit, or has it next."""
        self.permit_above: int | None = None
        """The share when a permit was asked for; None where none was."""
        self._permit_user: ServiceCharge | None = None
        self.holdings: dict[ServiceCharge, KvHolding] = {}
        self._blocks: dict[int, KvBlock] = {}
        self._seen_at = 0.0

    def tokens_for(self, need: KvNeed) -> int:
        """Return how many tokens more are held with one more request."""
        blocks, low, high = need.blocks, 0, len(need.blocks)
        while low < high:  # Who holds a block holds all before it.
            middle = (low + high) // 2
            if blocks[middle] in self._blocks:
                low = middle + 1
            else:
                high = middle
        return need.tokens - low * need.block_tokens

    def is_permitted(self, tokens: int) -> bool:
        """Tell whether a request of so many tokens may use the permit."""
        return self.permit_above is not None and self.permit_above < tokens <= self.permit

    def set_grant(self, grant: KvGrant | None) -> None:
        """Take in what the fleet says; a permit in use stays until its request has ended."""
        self.share = None if grant is None else grant.share
        self.is_taken = grant is not None and grant.is_taken
        is_asked = self.permit_above is not None and not self.permit_used
        self.permit = grant.permit if is_asked and grant is not None else 0

    def reserve(self, service: ServiceCharge, need: KvNeed) -> None:
        """A request begins."""
        own = need.tokens - len(need.blocks) * need.block_tokens
        self.holdings[service] = KvHolding(own, need.output_tokens, need.blocks)
        self.tokens += own
        for each in need.blocks:
            block = self._blocks.get(each)
            if block is None:
                block = self._blocks[each] = KvBlock(need.block_tokens)
                self.tokens += block.tokens
            block.holders += 1
        if self.permit and self.share is not None and self.tokens > self.share:
            self._permit_user, self.permit_above = service, None
            self.permit_used, self.permit = self.permit, 0

    def release(self, service: ServiceCharge) -> None:
        """A request holds nothing any more; harmless when it held nothing."""
        holding = self.holdings.pop(service, None)
        if holding is None:
            return
        self.tokens -= holding.tokens
        for each in holding.blocks:
            block = self._blocks[each]
            block.holders -= 1
            if not block.holders:
                self.tokens -= block.tokens
                del self._blocks[each]
        if service is self._permit_user:
            self._permit_user, self.permit_used = None, 0

    def record_growth(self, now: float) -> None:
        """Take in, once a second, which answers are longer by now than was thought."""
        if now - self._seen_at < CHARGE_SECONDS:
            return
        self._seen_at = now
        for service, holding in self.holdings.items():
            progress = service.progress
            made = None if progress is None else progress()
            if made is None or made.output <= holding.output_tokens:
                continue
            request = service.request
            output = made.output + GROWTH_TOKENS * request.sequences
            grown = min(output, max(made.output, request.output_tokens_max)) - holding.output_tokens
            holding.tokens += grown
            holding.output_tokens += grown
            self.tokens += grown
