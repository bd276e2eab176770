"""A modelled prefix cache: whole blocks, salted, least recently used out first."""

from collections import OrderedDict

import xxhash

from serving.engine.simulated.tokens import BYTES_PER_TOKEN, count_of


class PrefixCache:
    """Remembers which blocks of which prompts were computed; `capacity` blocks at most."""

    def __init__(self, *, block_size: int, capacity: int) -> None:
        self.block_size = block_size
        self.capacity = capacity
        self._known: OrderedDict[int, None] = OrderedDict()

    def use(self, prompt: bytes, salt: str | None) -> int:
        """Return how many leading tokens were cached, and cache the prompt's whole blocks.

        The last token is always computed, as an engine needs its logits.
        """
        hashes = self._block_hashes(prompt, salt)
        hits = 0
        for block in hashes:
            if block not in self._known:
                break
            hits += 1
        self._remember(hashes)
        most = (count_of(prompt) - 1) // self.block_size
        return min(hits, most) * self.block_size

    @property
    def usage(self) -> float:
        """Return the used share of the cache, 0 to 1."""
        return len(self._known) / self.capacity if self.capacity else 0.0

    def _block_hashes(self, prompt: bytes, salt: str | None) -> list[int]:
        width = self.block_size * BYTES_PER_TOKEN
        parent = xxhash.xxh3_64_intdigest((salt or "").encode())
        hashes = []
        for end in range(width, len(prompt) + 1, width):
            parent = xxhash.xxh3_64_intdigest(prompt[end - width : end], seed=parent)
            hashes.append(parent)
        return hashes

    def _remember(self, hashes: list[int]) -> None:
        for block in hashes:
            self._known[block] = None
            self._known.move_to_end(block)
        while len(self._known) > self.capacity:
            self._known.popitem(last=False)
