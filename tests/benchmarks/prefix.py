"""Routing by prefix: how fast turns of conversations may come where each goes to the replica that
knows its beginning, on one gateway and on three, beside replicas that are simply taken in turn."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle, islice
from math import inf
from random import Random

import typer

from serving.contract.replica import ReplicaRecord
from serving.pool.prefix_history import BLOCK_BYTES, SEEN_MAX, PromptPrefix, blocks_of
from serving.pool.replicas import Replica
from serving.pool.router import choose
from tests.benchmarks import peers
from tests.benchmarks.conversations import Conversations, Sizes, Spared, Turn
from tests.benchmarks.engine_counters import counter
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import ANYWHERE, Split
from tests.benchmarks.mock import MODEL
from tests.benchmarks.open_loop import Arrival, play, poisson
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import free_port, running
from tests.benchmarks.report import Row, Table, percentile, ratio
from tests.benchmarks.stage import START_SECONDS, Behind, Gateway
from tests.benchmarks.stand_in import BEGAN, VARIANT_ID
from tests.benchmarks.target import Target
from tests.fixtures.redis_server import running_redis

SIZES = Sizes()
SEED = 9
REPLICAS = 4
SLOTS = 32
BLOCK_TOKENS = 32
CACHE_TOKENS = 100_000
"""Of one replica: what is said in all conversations at a time fits four of these, not one."""
PREFILL = 8_000.0
"""Tokens a second."""
ITL_SECONDS = 0.02
CONTEXT_TOKENS = 16_384
TTFT_SECONDS = 1.0
IN_TIME = 95
"""Of a hundred first tokens, how many must come within that."""
WARM_UP_RATE, WARM_UP_SECONDS = 16.0, 15.0
RATE_MIN = 10.0
STEP = 2**0.25
STEP_SECONDS = 8.0
FAILURES = 2
"""In a row, after which the last rate before them is what was borne."""
DECISIONS = 1_000
DECISION_REPLICAS = 8
DECISION_BYTES = 16 * 1024

Door = Callable[[Turn], Target]
"""Where a turn is sent."""


@dataclass(frozen=True)
class Borne:
    """What a way of routing bore: turns a second, and the part of all input tokens that caches
    spared it, and would have, had they forgotten nothing."""

    rate: float
    hit_rate: float
    best_hit_rate: float
    check: str


@dataclass(frozen=True)
class Way:
    """A way to the replicas; `close` proves at the end what went it, and says so."""

    door: Door
    close: Callable[[int], str]


def measure(plan: Plan) -> Table:
    """Return the rates and hit rates of each way, their ratios, and the cost of a decision."""
    ways: dict[str, Callable[..., AbstractContextManager[Way]]] = {
        "in turn": _in_turn,
        "1 gateway": partial(_penstock, gateways=1),
        "3 gateways": partial(_penstock, gateways=3),
    }
    if plan.with_peers:
        ways["vllm-router, cache_aware"] = _router
    borne: dict[str, Borne] = {}
    for name, way in ways.items():
        with _replicas(plan) as urls, way(plan, urls) as opened:
            borne[name] = Trial(name, urls, opened).run()
    checks = [f"{name}: {one.check}" for name, one in borne.items()]
    rows = [_decision(), *_rows(borne)]
    title = f"Routing by prefix: {REPLICAS} replicas with room for {CACHE_TOKENS:,} tokens each"
    return Table(title, rows, checks, _remarks())


def _remarks() -> list[str]:
    low, high = (count // 4 for count in SIZES.instructions)
    return [
        f"{SIZES.conversations} conversations at a time of {SIZES.organizations} organizations, of"
        f" which the first has most (1 ÷ place); each organization begins with instructions of its"
        f" own ({low:,} to {high:,} tokens), a conversation has {SIZES.turns[0]} to"
        f" {SIZES.turns[1]} turns, and a turn repeats what was said. One trace, seed {SEED}.",
        f"Turns a second: the highest rate at which {IN_TIME} of 100 first tokens come within"
        f" {TTFT_SECONDS:g} s, of rates from {RATE_MIN:g}/s, each 19 % above the last,"
        f" {STEP_SECONDS:g} s of Poisson arrivals each, until {FAILURES} in a row fail, after"
        f" {WARM_UP_SECONDS:g} s at {WARM_UP_RATE:g}/s. Once, whatever the rounds.",
        f"A simulated replica reads {PREFILL:,.0f} tokens a second, one prompt after the other,"
        f" makes a token every {ITL_SECONDS * 1e3:g} ms for all that run, has {SLOTS} slots, and"
        f" keeps blocks of {BLOCK_TOKENS} tokens, least recently used out first. Each way has"
        " replicas of its own, cold ones.",
        "in turn: straight to the replicas, one after the other, with no gateway between; a turn"
        " comes to any of three gateways by chance, as if no client kept a connection.",
        "Hit rates are of the runs that were borne; that of caches that forget nothing is reckoned"
        " for the very same turns.",
        f"The decision: the hashes of a prompt of {DECISION_BYTES // 1024} KB, the choice among"
        f" {DECISION_REPLICAS} replicas of which each remembers {SEEN_MAX:,} blocks, and what that"
        " one learns.",
        f"All processes share {len(os.sched_getaffinity(0))} cores.",
    ]


def _rows(borne: dict[str, Borne]) -> Iterator[Row]:
    rates = {name: Row("turns a second", name, "/s", [one.rate]) for name, one in borne.items()}
    yield from rates.values()
    for name, row in rates.items():
        if name != "in turn":
            yield ratio("turns a second", row, rates["in turn"])
    for name, one in borne.items():
        yield Row("hit rate", name, "", [one.hit_rate])
        yield Row("hit rate, infinite cache", name, "", [one.best_hit_rate])
        yield Row("hit rate ÷ infinite cache's", name, "", [one.hit_rate / one.best_hit_rate])


@dataclass(frozen=True)
class Run:
    """Some seconds at a rate: how soon enough first tokens came, and of all input tokens how many
    were spared and would have been by caches that forget nothing."""

    ttft: float
    tokens: float
    spared: float
    spared_at_best: float


class Trial:
    """One way of routing under the trace."""

    def __init__(self, name: str, urls: list[str], way: Way) -> None:
        self._name = name
        self._urls = urls
        self._way = way
        self._turns = iter(Conversations(SIZES, SEED))
        self._best = Spared(block_size=BLOCK_TOKENS, context_tokens=CONTEXT_TOKENS)
        self._answers = 0

    def run(self) -> Borne:
        """Find the rate that it bears. Raises BenchmarkFailed unless all was whole, or 503."""
        borne, failed = [self._run(WARM_UP_RATE, WARM_UP_SECONDS, seed=0)], 0
        most, rate = 0.0, RATE_MIN
        for step in count(1):
            run = self._run(rate, STEP_SECONDS, seed=step)
            if run.ttft <= TTFT_SECONDS:
                borne, most, failed = [*borne, run], rate, 0
            else:
                failed += 1
            if failed == FAILURES:
                break
            rate *= STEP
        tokens = sum(run.tokens for run in borne)
        return Borne(
            most,
            sum(run.spared for run in borne) / tokens,
            sum(run.spared_at_best for run in borne) / tokens,
            self._way.close(self._answers),
        )

    def _run(self, rate: float, seconds: float, seed: int) -> Run:
        """Play a part of the trace at a rate; a turn that was refused has no first token."""
        before = self._counts()
        arrivals = [self._arrival(at) for at, _ in poisson({"turns": rate}, seconds, seed)]
        seen = play(arrivals)
        whole = [one for one in seen if one.is_whole]
        refused = sum(one.status == 503 for one in seen)
        self._answers += len(whole)
        if wrong := len(seen) - len(whole) - refused:
            raise BenchmarkFailed(f"{self._name}: {wrong} of {len(seen)} failed")
        ttft = percentile([*(one.ttft_ms for one in whole), *[inf] * refused], IN_TIME) / 1e3
        typer.echo(f"  {self._name}: {rate:5.1f}/s, TTFT {ttft:.2f} s, {refused} refused", err=True)
        return Run(ttft, *(now - was for now, was in zip(self._counts(), before, strict=True)))

    def _counts(self) -> tuple[float, float, float]:
        tokens, spared = self._count("total"), self._count("cached_total")
        return tokens, spared, self._best.cached_tokens

    def _arrival(self, at: float) -> Arrival:
        turn = next(self._turns)
        self._best.note(turn)
        return Arrival(at, str(turn.organization), self._way.door(turn), turn.body)

    def _count(self, which: str) -> float:
        return sum(counter(url, f"vllm:prompt_tokens_{which}") for url in self._urls)


@contextmanager
def _replicas(plan: Plan) -> Iterator[list[str]]:
    """Run simulated engines that answer to the model's name and to the variant's."""
    with ExitStack() as stack:
        started = []
        for _ in range(REPLICAS):
            port = free_port()
            command = [sys.executable, "-m", "serving.engine.simulated", "--port", str(port)]
            command += ["--served-model-name", VARIANT_ID, MODEL, "--slots", str(SLOTS)]
            command += ["--itl-seconds", str(ITL_SECONDS), "--block-size", str(BLOCK_TOKENS)]
            command += ["--prefill-tokens-per-second", str(PREFILL)]
            command += ["--cache-blocks", str(CACHE_TOKENS // BLOCK_TOKENS)]
            command += ["--context-tokens", str(CONTEXT_TOKENS)]
            child = running(f"engine-{port}", command, folder=plan.folder, cores=ANYWHERE, env={})
            started.append((f"http://127.0.0.1:{port}", stack.enter_context(child)))
        for url, engine in started:
            engine.wait_until_answers(f"{url}/health", seconds=START_SECONDS)
        yield [url for url, _ in started]


@contextmanager
def _in_turn(_: Plan, urls: list[str]) -> Iterator[Way]:
    """Send straight to the replicas, to one after the other."""
    turns = cycle([Target("in turn", url) for url in urls])
    yield Way(lambda _: next(turns), lambda answers: f"{answers:,} streams were whole")


@contextmanager
def _router(plan: Plan, urls: list[str]) -> Iterator[Way]:
    """Send through vllm-router."""
    start = peers.router(*urls, folder=plan.folder, cores=ANYWHERE, policy="cache_aware")
    with start as target:
        yield Way(lambda _: target, lambda answers: f"{answers:,} streams were whole")


@contextmanager
def _penstock(plan: Plan, urls: list[str], *, gateways: int) -> Iterator[Way]:
    """Send through gateways, to any of them by chance."""
    split, chance = Split(ANYWHERE, ANYWHERE), Random(SEED)
    with ExitStack() as stack:
        redis = stack.enter_context(running_redis(plan.folder))
        behind = stack.enter_context(
            Behind.one(
                *urls,
                folder=plan.folder,
                split=split,
                organizations=SIZES.organizations,
                slots=SLOTS,
                context_tokens=CONTEXT_TOKENS,
                redis_url=redis.url,
            )
        )
        targets = []
        for _ in range(gateways):
            port = free_port()
            child = stack.enter_context(
                behind.gateway(folder=plan.folder, cores=ANYWHERE, port=port)
            )
            targets.append(Target("gateway", f"http://127.0.0.1:{port}", child=child))

        def door(turn: Turn) -> Target:
            return replace(chance.choice(targets), api_key=behind.api_keys[turn.organization])

        yield Way(door, partial(_close_books, Gateway(targets[0], behind.stand_in_url)))


def _close_books(door: Gateway, answers: int) -> str:
    tally = door.wait_until_booked(answers=answers, requests=answers)
    if tally.duplicates or tally.wrong_charges or tally.others:
        raise BenchmarkFailed(f"the books are wrong: {tally}")
    return f"{tally.completed:,} streams were whole, and booked once at the right charge"


def _decision() -> Row:
    """Return what it costs to hash a prompt, to choose, and to remember."""
    chance = Random(SEED)
    replicas = [_remembering(number, chance) for number in range(DECISION_REPLICAS)]
    prompts = [chance.randbytes(DECISION_BYTES) for _ in range(DECISIONS)]
    for prompt, replica in zip(prompts, cycle(replicas), strict=False):
        replica.prefix_history.record(_prefix(prompt[: DECISION_BYTES // 2]))
    costs = []
    for batch in (prompts[start::10] for start in range(10)):
        began = time.perf_counter()
        for prompt in batch:
            prefix = _prefix(prompt)
            choice = choose(replicas, 0.0, prefix=prefix)
            if choice is None:
                raise BenchmarkFailed("nothing was chosen")
            choice.replica.prefix_history.record(prefix)
        costs.append((time.perf_counter() - began) / len(batch) * 1e6)
    return Row(
        "decision", f"{DECISION_BYTES // 1024} KB, {DECISION_REPLICAS} replicas", "µs", costs
    )


def _prefix(prompt: bytes) -> PromptPrefix:
    return PromptPrefix("org", blocks_of((prompt,), "salt"))


def _remembering(number: int, chance: Random) -> Replica:
    record = ReplicaRecord(
        f"rep_{number}", "dep", "http://127.0.0.1:1", "ready", SLOTS, BEGAN, "simulated"
    )
    replica = Replica(record, SLOTS)
    blocks = (chance.getrandbits(64) for _ in range(SEEN_MAX))
    while part := tuple(islice(blocks, DECISION_BYTES // BLOCK_BYTES)):
        replica.prefix_history.record(PromptPrefix("org", part))
    return replica
