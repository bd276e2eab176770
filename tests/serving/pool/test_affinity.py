"""Routing by prefix, played through in virtual time: conversations on four replicas with caches
that forget, through one gateway and through more that tell each other what they sent."""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count, islice
from math import inf
from random import Random
from typing import Literal

import pytest

from serving.pool.prefix_history import Blocks, PrefixHistory, PromptPrefix, blocks_of
from serving.pool.replicas import Replica
from serving.pool.router import RouteDecision, choose
from tests.fixtures import catalog

pytestmark = pytest.mark.unit
REPLICAS, SLOTS = 4, 32
CACHE_BLOCKS = 800
"""Of one replica; the conversations under way have about 3,000 together."""
READ_SECONDS = 1 / 64
"""For a block: 8,000 tokens a second."""
ANSWER_SECONDS = 0.2
TELL_SECONDS = 0.1
RATE = 40.0
TURNS, WARM = 3_000, 1_000
ORGANIZATIONS, CONVERSATIONS = 32, 128
Way = Literal["told", "untold", "by chance"]


@cache
def prefix(prompt: Blocks) -> PromptPrefix:
    return PromptPrefix("org_a", prompt)


def prompts() -> list[Blocks]:
    """Return turns of conversations, each of which repeats what was said before it, after its
    organization's instructions."""
    return list(islice(_prompts(Random(9)), TURNS))


def _prompts(chance: Random) -> Iterator[Blocks]:
    instructions = [chance.randbytes(512 * chance.randint(3, 12)) for _ in range(ORGANIZATIONS)]
    weights = [1 / place for place in range(1, ORGANIZATIONS + 1)]

    def begun() -> tuple[bytes, int]:
        return chance.choices(instructions, weights)[0], chance.randint(4, 12)

    conversations = deque(begun() for _ in range(CONVERSATIONS))
    while True:
        conversations.rotate(-chance.randrange(CONVERSATIONS // 2))
        said, turns = conversations.popleft()
        said += chance.randbytes(chance.randint(300, 1_500))
        yield blocks_of((said,), "salt")
        said += chance.randbytes(chance.randint(300, 1_500))
        conversations.append((said, turns - 1) if turns > 1 else begun())


@dataclass(eq=False)
class Gateway:
    """One that shares the replicas: what it knows of them, and who waits for a slot."""

    replicas: list[Replica]
    told_unread: list[int] = field(default_factory=lambda: [0] * REPLICAS)
    waiting: deque[tuple[Blocks, float]] = field(default_factory=deque)


@dataclass
class World:
    """Replicas that read one prompt after the other, and gateways with even shares of their
    slots."""

    way: Way
    count: int
    is_on: bool = True
    ttfts: list[float] = field(default_factory=list)
    spared: int = 0
    best: int = 0
    """What caches that forget nothing would have spared."""

    def __post_init__(self) -> None:
        records = [catalog.replica(f"http://r{n}", n, slots=SLOTS) for n in range(REPLICAS)]
        self.gateways = [
            Gateway([Replica(one, SLOTS // self.count) for one in records])
            for _ in range(self.count)
        ]
        self.caches = [PrefixHistory(CACHE_BLOCKS) for _ in range(REPLICAS)]
        self.free_at = [0.0] * REPLICAS
        self.now, self.chance, self.numbers = 0.0, Random(1), count()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        if self.way == "told":
            for gateway in self.gateways:
                self._tell_unread(gateway)

    def run(self) -> "World":
        """Play all turns."""
        all_seen, at = PrefixHistory(10**9), 0.0
        for number, prompt in enumerate(prompts()):
            self.is_warm = number >= WARM
            self.best += self.is_warm * all_seen.count(prefix(prompt))
            all_seen.record(prefix(prompt))
            at += self.chance.expovariate(RATE if self.is_warm else RATE / 2)
            self._play(until=at)
            gateway = self.chance.choice(self.gateways)
            gateway.waiting.append((prompt, at))
            self._call(gateway)
        self.is_on = False
        self._play(until=inf)
        return self

    def _at(self, moment: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.events, (moment, next(self.numbers), do))

    def _play(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            self.now, _, do = heapq.heappop(self.events)
            do()
        self.now = until

    def _call(self, gateway: Gateway) -> None:
        while gateway.waiting:
            choice = self._choose(gateway, gateway.waiting[0][0])
            if choice is None:
                return
            self._begin(gateway, choice, *gateway.waiting.popleft())

    def _choose(self, gateway: Gateway, prompt: Blocks) -> RouteDecision | None:
        if self.way != "by chance":
            return choose(gateway.replicas, 0.0, prefix=prefix(prompt))
        free = [one for one in gateway.replicas if one.has_room]
        return RouteDecision(self.chance.choice(free), "load") if free else None

    def _begin(
        self, gateway: Gateway, choice: RouteDecision, prompt: Blocks, came_at: float
    ) -> None:
        replica, place = choice.replica, gateway.replicas.index(choice.replica)
        replica.in_flight += 1
        replica.prefill_backlog += choice.prefill_backlog
        replica.prefix_history.record(prefix(prompt))
        first = self._read(place, prompt)
        if self.is_warm:
            self.ttfts.append(first - came_at)
        self._at(first, partial(self._answer, replica, choice.prefill_backlog))
        self._at(first + ANSWER_SECONDS, partial(self._end, gateway, replica))
        if self.way == "told":
            for other in self.gateways:
                seen = other.replicas[place].prefix_history
                self._at(self.now + TELL_SECONDS, partial(seen.record, prefix(prompt)))

    def _tell_unread(self, gateway: Gateway) -> None:
        """Say again and again how much of what it gave is still to be read, to gateways of which
        each keeps the last word."""
        for place, own in enumerate(gateway.replicas):
            more = own.prefill_backlog - gateway.told_unread[place]
            gateway.told_unread[place] = own.prefill_backlog
            for other in self.gateways:
                if other is not gateway:
                    other.replicas[place].remote_prefill_backlog += more
        if self.is_on:
            self._at(self.now + TELL_SECONDS, partial(self._tell_unread, gateway))

    def _read(self, place: int, prompt: Blocks) -> float:
        """Have a replica read a prompt; return when it will have."""
        cached = self.caches[place].count(prefix(prompt))
        self.caches[place].record(prefix(prompt))
        self.spared += self.is_warm * cached
        read = (len(prompt) - cached) * READ_SECONDS
        self.free_at[place] = max(self.now, self.free_at[place]) + read
        return self.free_at[place]

    def _answer(self, replica: Replica, prefill_backlog: int) -> None:
        replica.prefill_backlog -= prefill_backlog

    def _end(self, gateway: Gateway, replica: Replica) -> None:
        replica.in_flight -= 1
        self._call(gateway)


def p95(world: World) -> float:
    return sorted(world.ttfts)[int(len(world.ttfts) * 0.95)]


@pytest.mark.parametrize("gateways", [1, 2, 4])
def test_conversations_find_what_was_read_of_them_through_any_gateway(gateways: int) -> None:
    world = World("told", gateways).run()
    assert world.spared / world.best >= 0.92
    assert p95(world) <= 0.6


def test_without_a_word_gateways_find_less_and_by_chance_nobody_finds_much() -> None:
    told, untold, by_chance = (World(way, 4).run() for way in ("told", "untold", "by chance"))
    assert told.spared > 1.1 * untold.spared
    assert told.spared > 1.5 * by_chance.spared
    assert p95(by_chance) > 5 * p95(told)
