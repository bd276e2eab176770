"""Which replica saw the beginning of which prompt: approximately, by digests alone.

A prompt is a chain of blocks, each hashed together with all before it, so that one block stands for
a whole beginning. The chain begins with a salt, the organization's and the model's: no two share a
block, whatever they say (I7).
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

BLOCK_BYTES = 512
"""About 128 tokens."""
BLOCKS_MAX = 256
"""Of one prompt: what comes after 128 KB tells no more of where a conversation was."""
SEEN_MAX = 8_192
"""Of one replica, about a million tokens: 1.5 MB."""
FORGET_PART = 1 / 32
"""Of what may be remembered: what is forgotten at once, as looking who has most takes a while."""

Blocks = tuple[int, ...]


class PromptPrefix(NamedTuple):
    """How a prompt begins, and whose it is: all organizations that never paid are one tenant."""

    tenant_id: str
    blocks: Blocks


def blocks_of(prompt: Sequence[bytes], salt: str) -> Blocks:
    """Return the whole blocks of a prompt, of which a large one's first piece is looked at.

    Linear in its bytes, and bounded.
    """
    data = prompt[0]
    if len(data) < BLOCK_BYTES:
        return ()
    block = xxh3_64_intdigest(salt.encode())
    ends = range(BLOCK_BYTES, min(len(data), BLOCKS_MAX * BLOCK_BYTES) + 1, BLOCK_BYTES)
    return tuple([block := xxh3_64_intdigest(data[end - BLOCK_BYTES : end], block) for end in ends])


class PrefixHistory:
    """The blocks that one replica was sent, by tenant. Where there are too many, the tenants that
    have most lose those that were sent first: new prompts of one leave alone what others have.

    Where a block of a tenant is, all before it in its chain are: they were sent no earlier, and are
    forgotten no earlier.
    """

    def __init__(self, blocks_max: int = SEEN_MAX) -> None:
        self._blocks_max = blocks_max
        self._count = 0
        self._of: dict[str, OrderedDict[int, None]] = {}

    def __len__(self) -> int:
        return self._count

    def count(self, prefix: PromptPrefix) -> int:
        """Return how many of a prompt's first blocks it saw, in O(log n)."""
        known, blocks = self._of.get(prefix.tenant_id), prefix.blocks
        if known is None or not blocks or blocks[0] not in known:
            return 0  # As of most replicas.
        low, high = 1, len(blocks)
        while low < high:
            middle = (low + high) // 2
            if blocks[middle] in known:
                low = middle + 1
            else:
                high = middle
        return low

    def record(self, prefix: PromptPrefix) -> None:
        """Remember a prompt."""
        known = self._of.get(prefix.tenant_id)
        if known is None:
            known = self._of[prefix.tenant_id] = OrderedDict()
        before, touch = len(known), known.move_to_end
        for block in reversed(prefix.blocks):
            known[block] = None
            touch(block)
        self._count += len(known) - before
        if self._count > self._blocks_max:
            self._forget_down_to(int(self._blocks_max * (1 - FORGET_PART)))

    def clear(self) -> None:
        """Forget all: its cache is gone."""
        self._of.clear()
        self._count = 0

    def _forget_down_to(self, count: int) -> None:
        """Keep so many blocks: the tenants that have most have as many as each other then."""
        largest = _largest_left([len(known) for known in self._of.values()], self._count - count)
        for most in (largest + 1, largest):
            for known in self._of.values():
                excess = min(len(known) - most, self._count - count)
                if excess > 0:
                    self._count -= excess
                    for _ in range(excess):
                        known.popitem(last=False)
        self._of = {tenant_id: known for tenant_id, known in self._of.items() if known}


def _largest_left(sizes: list[int], count: int) -> int:
    """Return down to which size the largest have to be cut, to be `count` less in all or somewhat
    more: one more would not do."""
    sizes.sort(reverse=True)
    total = 0
    for number, (size, next_size) in enumerate(pairwise([*sizes, 0]), start=1):
        total += size
        if total - number * next_size >= count:
            return (total - count) // number
    return 0
