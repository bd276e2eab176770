"""Tokens of the simulated engine: four bytes make a prompt token, a short word an output token."""

import random
from dataclasses import dataclass

import xxhash

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
class Answer:
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

    def answer(self, prompt: bytes, *, salt: int, mean_tokens: int) -> Answer:
        """Return the answer to a prompt; `salt` tells seeds and choices apart."""
        digest = xxhash.xxh3_64_intdigest(prompt, seed=(self.seed * 1_000_003 + salt) & (2**64 - 1))
        half = mean_tokens // 2
        return Answer(
            start=digest % VOCABULARY_SIZE,
            step=1 + (digest >> 16) % 1_023,
            length=max(1, mean_tokens - half + (digest >> 32) % (2 * half + 1)),
        )

    def word(self, answer: Answer, index: int) -> str:
        """Return the answer's word at `index`."""
        return self.words[(answer.start + index * answer.step) % VOCABULARY_SIZE]
