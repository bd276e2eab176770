"""Which replica saw the beginning of which prompt: approximately, by digests alone.

A prompt is a chain of blocks, each hashed together with all before it, so that one block stands for
a whole beginning. The chain begins with a salt, the organization's and the model's: no two share a
block, whatever they say (I7).
"""

from collections import OrderedDict
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

BLOCK_BYTES = 512
"""About 128 tokens."""
BLOCKS_MAX = 256
"""Of one prompt: what comes after 128 KB tells no more of where a conversation was."""
SEEN_MAX = 8_192
"""Of one replica, about a million tokens: 1.5 MB."""

Blocks = tuple[int, ...]


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
    """The blocks that one replica was sent, those that were sent last.

    Where a block is, all before it in its chain are: they were sent no earlier, and are forgotten
    no earlier.
    """

    def __init__(self, blocks_max: int = SEEN_MAX) -> None:
        self._blocks_max = blocks_max
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def count(self, blocks: Blocks) -> int:
        """Return how many of a prompt's first blocks it saw, in O(log n)."""
        known, low, high = self._blocks, 0, len(blocks)
        if not blocks or blocks[0] not in known:
            return 0  # As of most replicas.
        while low < high:
            middle = (low + high) // 2
            if blocks[middle] in known:
                low = middle + 1
            else:
                high = middle
        return low

    def record(self, blocks: Blocks) -> None:
        """Remember a prompt."""
        known, touch = self._blocks, self._blocks.move_to_end
        for block in reversed(blocks):
            known[block] = None
            touch(block)
        while len(known) > self._blocks_max:
            known.popitem(last=False)

    def clear(self) -> None:
        """Forget all: its cache is gone."""
        self._blocks.clear()
