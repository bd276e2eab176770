"""Overload: what is answered in time at one, two and five times what an engine can do, how soon
the rest is told so, who is shed first, what batches make of idle slots, and what 10,000 slow
connections do to a neighbour."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from statistics import mean

import typer

from serving.contract.units import TIERS
from tests.benchmarks.engine_counters import TokenRate
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import ANYWHERE, Split
from tests.benchmarks.mock import MODEL
from tests.benchmarks.open_loop import Arrival, Seen, play, poisson
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import Child, free_port, running
from tests.benchmarks.report import Row, Table, percentile, ratio
from tests.benchmarks.stage import START_SECONDS, Behind, Gateway
from tests.benchmarks.stand_in import VARIANT_ID
from tests.benchmarks.target import Target

SLOTS = 64
ITL_SECONDS = 0.04
TOKENS = range(8, 25)
"""Of an answer; which of them, chance says."""
CAPACITY = SLOTS / (ITL_SECONDS * mean(TOKENS))
"""Requests a second: 100."""
OBJECTIVE_SECONDS = 2.0
QUEUE_SECONDS = 1.5
"""What the deployment lets a request wait for a slot: the objective, less what an engine needs."""
LOADS = (1, 2, 5)
ORGANIZATIONS = 10
SECONDS = 20.0
SKIP_SECONDS = 5.0
"""At the beginning, until slots and lines are full."""
INTERACTIVE = 0.3 * CAPACITY
BATCHES = 2 * SLOTS
SLOW = 10_000
SLOW_SECONDS = 6.0
SLOW_START_SECONDS = 60.0
NEIGHBOUR = 0.2 * CAPACITY
PROMPT = "A penstock is the gated, metered pipe that feeds a turbine. Say how much water flows. "


@dataclass(frozen=True)
class Scene:
    """Requests a second by tier, and how many of the batch tier are always under way."""

    name: str
    rates: dict[str, float]
    batches: int = 0
    seconds: float = SECONDS


OVERLOADS = tuple(Scene(f"{load}x", {"default": load * CAPACITY}) for load in LOADS)
TIERED = Scene("2x, a quarter of each tier", dict.fromkeys(TIERS, CAPACITY / 2))
INTERACTING = Scene("interactive", {"default": INTERACTIVE})
FILLED = replace(INTERACTING, name="filled", batches=BATCHES)
SCENES = (*OVERLOADS, TIERED, INTERACTING, FILLED)
BESIDE = Scene("neighbour", {"priority": NEIGHBOUR}, seconds=SLOW_SECONDS)


@dataclass
class Figures:
    """One run of a scene: what came of its requests after the beginning, and the engine's tokens a
    second."""

    seconds: float
    seen: list[Seen] = field(default_factory=list)
    tokens: float = 0.0
    batch_tokens: float = 0.0

    def goodput(self, tier: str | None = None) -> float:
        """Return how many requests a second were answered whole and in time."""
        good = [
            one
            for one in self.seen
            if one.is_whole and one.ttft_ms <= OBJECTIVE_SECONDS * 1e3 and tier in (None, one.who)
        ]
        return len(good) / self.seconds

    @property
    def refusals_ms(self) -> list[float]:
        """How long those that were not served were kept waiting for the answer."""
        return [one.told_ms for one in self.seen if one.status != 200]

    def ttft_ms(self) -> float:
        """Return the 99th percentile of the time to the first token."""
        return percentile([one.ttft_ms for one in self.seen if one.is_whole], 99)

    def gap_ms(self) -> float:
        """Return the same of the time between tokens."""
        return percentile([gap for one in self.seen for gap in one.gaps_ms], 99)


def measure(plan: Plan) -> Table:
    """Return goodput by load and tier, the time to a refusal, batches' part of idle tokens, and a
    neighbour's times beside slow connections."""
    with _set_up(plan) as setup:
        setup.run(OVERLOADS[1], seed=0)
        rounds = range(1, plan.rounds + 1)
        seen = [{one.name: setup.run(one, seed) for one in _in_turn(seed)} for seed in rounds]
        alone, beside = [], []
        for seed in rounds:
            alone.append(setup.run(BESIDE, seed))
            with setup.slow_connections(plan, seed):
                beside.append(setup.run(BESIDE, seed))
        rows = [*_goodputs(seen), *_refusals(seen), *_tiers(seen), *_batches(seen)]
        rows += _beside(alone, beside)
        checks = [setup.close_books(), *setup.remarks]
    title = (
        f"Overload: {SLOTS} slots of {CAPACITY:g} requests/s, first tokens due in"
        f" {OBJECTIVE_SECONDS:g} s, rounds of {SECONDS:g} s"
    )
    return Table(title, rows, checks, _remarks())


def _in_turn(seed: int) -> tuple[Scene, ...]:
    return SCENES if seed % 2 else SCENES[::-1]


def _remarks() -> list[str]:
    cores = len(os.sched_getaffinity(0))
    return [
        f"Requests come by chance at a steady rate, from {ORGANIZATIONS} organizations,"
        f" {TOKENS[0]} to {TOKENS[-1]} tokens each, each on a connection of its own; those of the"
        f" first {SKIP_SECONDS:g} s of a round count for nothing. Peak is the best goodput of the"
        f" round. The deployment's `queue_seconds` is {QUEUE_SECONDS:g}. From its first request of"
        " the tier `priority` on, `batch` leaves a tenth of the slots free for such, in all rounds"
        " after.",
        f"interactive: {INTERACTIVE:g} requests/s of the tier `default`; filled: with {BATCHES}"
        " requests of the tier `batch` always under way. Idle tokens are what the engine made at"
        " 2x, less the interactive ones.",
        f"A neighbour asks {NEIGHBOUR:g} times a second, beside nobody and beside {SLOW:,}"
        " connections of 50 addresses: half idle after one request, a fourth sending a head and a"
        " fourth a body, a byte every two seconds. Whichever the gateway closes comes again.",
        f"Load, gateway, engine and the stand-in share {cores} cores.",
    ]


def _row(figure: str, scene: str, unit: str, values: list[float]) -> Row:
    return Row(figure, scene, unit, values)


def _goodputs(seen: list[dict[str, Figures]]) -> Iterator[Row]:
    names = [scene.name for scene in OVERLOADS]
    best = [max(once[name].goodput() for name in names) for once in seen]
    peak = _row("peak goodput", "best of a round", "/s", best)
    yield peak
    for name in names:
        row = _row("goodput", name, "/s", [once[name].goodput() for once in seen])
        yield row
        yield replace(ratio("goodput ÷ peak", row, peak), target=name)


def _refusals(seen: list[dict[str, Figures]]) -> Iterator[Row]:
    for scene in OVERLOADS[1:]:
        waits = [once[scene.name].refusals_ms for once in seen]
        if not all(waits):
            raise BenchmarkFailed(f"nobody was refused at {scene.name}")
        for percent in (50, 99):
            values = [percentile(one, percent) for one in waits]
            yield _row(f"p{percent} time to a refusal", scene.name, "ms", values)


def _tiers(seen: list[dict[str, Figures]]) -> Iterator[Row]:
    for tier in TIERS:
        values = [once[TIERED.name].goodput(tier) / TIERED.rates[tier] for once in seen]
        yield _row(f"answered in time, {tier}", TIERED.name, "", values)


def _batches(seen: list[dict[str, Figures]]) -> Iterator[Row]:
    alone, filled = ([once[one.name] for once in seen] for one in (INTERACTING, FILLED))
    for figure, of in (("p99 TTFT", Figures.ttft_ms), ("p99 ITL", Figures.gap_ms)):
        theirs = _row(figure, "interactive", "ms", [of(one) for one in alone])
        ours = _row(figure, "filled", "ms", [of(one) for one in filled])
        yield from (theirs, ours, replace(ratio(f"{figure}, filled ÷ alone", ours, theirs)))
    full = [once["2x"].tokens for once in seen]
    idle = [all_ - (one.tokens - one.batch_tokens) for all_, one in zip(full, filled, strict=True)]
    batch = _row("batch tokens", "filled", "/s", [one.batch_tokens for one in filled])
    spare = _row("idle tokens", "2x less interactive", "/s", idle)
    yield from (batch, spare, replace(ratio("batch ÷ idle tokens", batch, spare), target="filled"))


def _beside(alone: list[Figures], beside: list[Figures]) -> Iterator[Row]:
    theirs = _row("neighbour's p99 TTFT", "alone", "ms", [one.ttft_ms() for one in alone])
    ours = _row("neighbour's p99 TTFT", f"beside {SLOW:,}", "ms", [x.ttft_ms() for x in beside])
    yield from (theirs, ours, ratio("neighbour's p99 TTFT, with ÷ without", ours, theirs))


class Setup:
    """A gateway before one simulated engine, and all that was asked of it."""

    def __init__(self, engine_url: str, behind: Behind, door: Gateway) -> None:
        self.remarks: list[str] = []
        self._engine_url = engine_url
        self._behind = behind
        self._door = door
        self._answers = 0
        self._refused = 0
        self._numbers = count()

    def run(self, scene: Scene, seed: int) -> Figures:
        """Play one scene. Raises BenchmarkFailed where anything but 200 and 503 was answered, or an
        answer was not whole."""
        typer.echo(f"  round {seed}: {scene.name}", err=True)
        chance, window = Random(seed), TokenRate(self._engine_url, SKIP_SECONDS, scene.seconds)
        trace = poisson(scene.rates, scene.seconds, seed)
        arrivals = [self._arrival(at, tier, chance) for at, tier in trace]
        loops = [self._again(chance) for _ in range(scene.batches)]
        window.start()
        seen = play(arrivals, loops, until=scene.seconds)
        window.join()
        wrong = [one for one in seen if not one.is_whole and one.status != 503]
        if wrong:
            raise BenchmarkFailed(f"{scene.name}: {len(wrong)} of {len(seen)} failed, {wrong[0]}")
        self._answers += sum(one.is_whole for one in seen)
        self._refused += sum(one.status == 503 for one in seen)
        return _figures(scene, seen, window.tokens_per_second)

    def _arrival(self, at: float, tier: str, chance: Random) -> Arrival:
        target = replace(self._door.target, api_key=chance.choice(self._behind.api_keys))
        tokens = chance.choice(TOKENS)
        return Arrival(at, tier, target, self._body(tier, tokens), tokens=tokens)

    def _again(self, chance: Random) -> Iterator[Arrival]:
        while True:
            yield self._arrival(0.0, "batch", chance)

    def _body(self, tier: str, tokens: int) -> bytes:
        turn = {"role": "user", "content": f"{next(self._numbers)} {PROMPT}"}
        fields = {"model": MODEL, "messages": [turn], "max_tokens": tokens, "ignore_eos": True}
        return json.dumps(fields | {"stream": True, "service_tier": tier}).encode()

    @contextmanager
    def slow_connections(self, plan: Plan, seed: int) -> Iterator[None]:
        """Have a crowd connected. Raises BenchmarkFailed when it does not come in."""
        target = self._door.target
        command = [sys.executable, "-m", "tests.benchmarks.slow", "--port", str(target.address[1])]
        command += ["--count", str(SLOW), "--api-key", self._behind.api_key]
        name = f"slow-{seed}"
        with running(name, command, folder=plan.folder, cores=ANYWHERE, env={}) as crowd:
            connected = _wait_until_connected(crowd)
            yield
            self.remarks.append(f"beside {connected:,} slow connections the neighbour was answered")

    def close_books(self) -> str:
        """Prove that each answer was booked once and no refusal was, and say so."""
        tally = self._door.wait_until_booked(answers=self._answers, requests=self._answers)
        if tally.duplicates or tally.wrong_charges or tally.others:
            raise BenchmarkFailed(f"the books are wrong: {tally}")
        if tally.completed != self._answers:
            raise BenchmarkFailed(f"{self._answers} answers, but {tally.completed} were booked")
        return (
            f"{tally.completed:,} streams were whole, and booked once at the right charge;"
            f" {self._refused:,} were refused with 503, and nothing was booked"
        )


def _figures(scene: Scene, seen: list[Seen], tokens: float) -> Figures:
    seconds = scene.seconds - SKIP_SECONDS
    batch = [one for one in seen if one.who == "batch"] if scene.batches else []
    of_batches = sum(one.tokens_within(SKIP_SECONDS, scene.seconds) for one in batch)
    looked_at = [
        one
        for one in seen
        if one.who in scene.rates and SKIP_SECONDS <= one.sent_at < scene.seconds
    ]
    return Figures(seconds, looked_at, tokens, of_batches / seconds)


def _wait_until_connected(crowd: Child) -> int:
    """Wait until nearly all are connected and stay so; return how many."""
    deadline = time.monotonic() + SLOW_START_SECONDS
    while time.monotonic() < deadline and crowd.process.poll() is None:
        time.sleep(0.5)
        lines = crowd.log.read_text().splitlines()
        connected = int(lines[-1].split()[2]) if lines and lines[-1].endswith("again") else 0
        if connected >= 0.95 * SLOW:
            return connected
    raise BenchmarkFailed(f"the slow connections did not come in: {crowd.log.read_text()[-300:]}")


@contextmanager
def _set_up(plan: Plan) -> Iterator[Setup]:
    port, own = free_port(), free_port()
    command = [sys.executable, "-m", "serving.engine.simulated", "--port", str(port)]
    command += ["--served-model-name", VARIANT_ID, "--slots", str(SLOTS)]
    command += ["--itl-seconds", str(ITL_SECONDS)]
    with ExitStack() as stack:
        enter = stack.enter_context
        name = f"engine-{port}"
        engine = enter(running(name, command, folder=plan.folder, cores=ANYWHERE, env={}))
        url = f"http://127.0.0.1:{port}"
        engine.wait_until_answers(f"{url}/health", seconds=START_SECONDS)
        behind = enter(
            Behind.one(
                url,
                folder=plan.folder,
                split=Split(ANYWHERE, ANYWHERE),
                organizations=ORGANIZATIONS,
                slots=SLOTS,
                queue_seconds=QUEUE_SECONDS,
            )
        )
        child = enter(behind.gateway(folder=plan.folder, cores=ANYWHERE, port=own))
        target = Target("gateway", f"http://127.0.0.1:{own}", behind.api_key, child)
        yield Setup(url, behind, Gateway(target, behind.stand_in_url))
