"""Turns of many conversations, as they come to a door: the same seed tells the same ones.

Each organization begins all of its conversations with instructions of its own, and a turn repeats
all that was said before it. So what an engine can spare is known: `spared` counts it.
"""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from serving.engine.simulated.request import read_chat
from serving.engine.simulated.tokens import SimulatedPrefixCache
from tests.benchmarks.mock import MODEL

WORDS = ("gate", "water", "measured", "pipe", "valve", "turbine", "head", "spill", "penstock")


@dataclass(frozen=True)
class Sizes:
    """Of organizations and what they say, in characters; the first has most conversations, by
    1 ÷ place (Zipf)."""

    organizations: int = 32
    conversations: int = 128
    """Under way at a time."""
    instructions: tuple[int, int] = (1_500, 6_000)
    said: tuple[int, int] = (300, 1_500)
    turns: tuple[int, int] = (4, 12)
    output_tokens: int = 8


@dataclass(frozen=True)
class Turn:
    """A request: the place of its organization, and its body."""

    organization: int
    body: bytes


@dataclass
class Conversation:
    """One under way; `turns` are left."""

    organization: int
    turns: int
    messages: list[dict[str, str]] = field(default_factory=list)


class Conversations:
    """An endless trace. Who spoke a while ago goes on before who spoke just now: the next turn is
    by chance that of one of the half that has been silent longest."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        self._sizes = sizes
        self._chance = Random(seed)
        self._weights = [1 / place for place in range(1, sizes.organizations + 1)]
        self._instructions = [self._text(sizes.instructions) for _ in self._weights]
        self._open = deque(self._begun() for _ in range(sizes.conversations))

    def __iter__(self) -> Iterator[Turn]:
        """Yield turn after turn."""
        while True:
            place = self._chance.randrange(len(self._open) // 2)
            self._open.rotate(-place)
            conversation = self._open.popleft()
            self._open.rotate(place)
            conversation.messages.append({"role": "user", "content": self._text(self._sizes.said)})
            yield Turn(conversation.organization, self._body(conversation))
            answer = {"role": "assistant", "content": self._text(self._sizes.said)}
            conversation.messages.append(answer)
            conversation.turns -= 1
            self._open.append(conversation if conversation.turns else self._new())

    def _begun(self) -> Conversation:
        """Return one that has any number of its turns left."""
        conversation = self._new()
        conversation.turns = self._chance.randint(1, conversation.turns)
        return conversation

    def _new(self) -> Conversation:
        [organization] = self._chance.choices(range(len(self._weights)), self._weights)
        instructions = {"role": "system", "content": self._instructions[organization]}
        return Conversation(organization, self._chance.randint(*self._sizes.turns), [instructions])

    def _text(self, characters: tuple[int, int]) -> str:
        words: list[str] = []
        left = self._chance.randint(*characters)
        while left > 0:
            words.append(f"{self._chance.choice(WORDS)}{self._chance.randrange(10_000)}")
            left -= len(words[-1]) + 1
        return " ".join(words)

    def _body(self, conversation: Conversation) -> bytes:
        tokens = self._sizes.output_tokens
        fields = {"model": MODEL, "messages": conversation.messages, "max_tokens": tokens}
        return json.dumps(fields | {"ignore_eos": True, "stream": True}).encode()


class Spared:
    """What a cache that forgets nothing would have spared, of the turns it is told of."""

    def __init__(self, *, block_size: int, context_tokens: int) -> None:
        self.cached_tokens = 0
        self._context_tokens = context_tokens
        self._cache = SimulatedPrefixCache(block_size=block_size, capacity=2**62)

    def note(self, turn: Turn) -> None:
        """Take in a turn."""
        work = read_chat(turn.body, (MODEL,), self._context_tokens)
        self.cached_tokens += self._cache.use(work.prompt, str(turn.organization))
