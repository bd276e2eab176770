"""Seeded tokens, and the cache of prefixes."""

import random
from collections import OrderedDict
from dataclasses import dataclass

import xxhash


class SimulatedPrefixCache:
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


BYTES_PER_TOKEN = 4
VOCABULARY_SIZE = 4_096
_SYLLABLES = (
    "ba",
    "de",
    "fi",
    "go",
    "ku",
    "la",
    "me",
    "ni",
    "po",
    "ru",
    "sa",
    "te",
    "vi",
    "wo",
    "xu",
)


def prompt_of_text(text: str) -> bytes:
    """Return the prompt's tokens as bytes, four to a token."""
    raw = text.encode()
    return raw + bytes(-len(raw) % BYTES_PER_TOKEN)


def prompt_of_ids(ids: list[int]) -> bytes:
    """Return token ids as prompt bytes."""
    return b"".join(id_.to_bytes(BYTES_PER_TOKEN, "little") for id_ in ids)


def prompt_of_messages(messages: list[tuple[str, str]]) -> bytes:
    """Return role and content pairs as a chat template would: two marks and the text each."""
    parts = []
    for role, content in messages:
        parts += [role[:4].ljust(4).encode(), prompt_of_text(content), b"\n\n\n\n"]
    return b"".join(parts) + b"answ"


def count_of(prompt: bytes) -> int:
    """Return how many tokens a prompt has."""
    return len(prompt) // BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """What the model would say: `length` words from `start` on, `step` apart in the vocabulary."""

    start: int
    step: int
    length: int


class Vocabulary:
    """The words of one seed: the same prompt gets the same answer, always."""

    def __init__(self, seed: int) -> None:
        chooser = random.Random(seed)  # noqa: S311  seeded on purpose
        self.seed = seed
        self.words = [
            " " + "".join(chooser.choices(_SYLLABLES, k=chooser.randint(1, 3)))
            for _ in range(VOCABULARY_SIZE)
        ]

    def answer(self, prompt: bytes, *, salt: int, mean_tokens: int) -> SampledAnswer:
        """Return the answer to a prompt; `salt` tells seeds and choices apart."""
        digest = xxhash.xxh3_64_intdigest(prompt, seed=(self.seed * 1_000_003 + salt) & (2**64 - 1))
        half = mean_tokens // 2
        return SampledAnswer(
            start=digest % VOCABULARY_SIZE,
            step=1 + (digest >> 16) % 1_023,
            length=max(1, mean_tokens - half + (digest >> 32) % (2 * half + 1)),
        )

    def word(self, answer: SampledAnswer, index: int) -> str:
        """Return the answer's word at `index`."""
        return self.words[(answer.start + index * answer.step) % VOCABULARY_SIZE]
