"""Fairness: what one organization waits beside others, and what a less urgent tier makes of idle
slots, on one gateway and on three that share a replica."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from statistics import mean

import typer

from tests.benchmarks.engine_counters import TokenRate, counter
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import ANYWHERE, Split
from tests.benchmarks.mock import MODEL
from tests.benchmarks.open_loop import Arrival, Seen, play, poisson
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import free_port, running
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
VICTIM = CAPACITY / 10
OTHERS = 10
INTERACTIVE = 0.3 * CAPACITY
BATCHES = 2 * SLOTS
"""Requests of the batch tier that are always under way."""
SECONDS = 15.0
SKIP_SECONDS = 3.0
"""At the beginning, until slots are full."""
PROMPT = "A penstock is the gated, metered pipe that feeds a turbine. Say how much water flows. "
SCENES = ("alone", "reserved", "many", "aggressor", "first come", "interactive", "filled")
OF_ONE_GATEWAY = ("interactive", "filled")


@dataclass(frozen=True)
class Figures:
    """One run: the 99th percentiles of whoever is looked at, and tokens a second by the engine and
    by who they were for."""

    ttft_ms: float
    gap_ms: float
    tokens: float
    by_whom: dict[str, float]


def measure(plan: Plan) -> Table:
    """Return what the victim waits in each company, what all get, and the ratios of the two."""
    rows: list[Row] = []
    checks: list[str] = []
    for gateways in (1, 3):
        with _set_up(plan, gateways) as setup:
            scenes = [name for name in SCENES if gateways == 1 or name not in OF_ONE_GATEWAY]
            setup.run("many", seed=0)
            seen = [
                {name: setup.run(name, seed) for name in _in_turn(scenes, seed)}
                for seed in range(1, plan.rounds + 1)
            ]
            rows += _rows(f"{gateways} gateway" + "s" * (gateways > 1), seen)
            checks.append(setup.close_books())
    title = (
        f"Fairness: {SLOTS} slots of {CAPACITY:g} requests/s, a victim with {VICTIM:g}/s,"
        f" rounds of {SECONDS:g} s"
    )
    return Table(title, rows, checks, _remarks())


def _in_turn(scenes: list[str], seed: int) -> list[str]:
    return scenes if seed % 2 else scenes[::-1]


def _remarks() -> list[str]:
    cores = len(os.sched_getaffinity(0))
    return [
        f"The simulated engine makes a token of each sequence every {ITL_SECONDS * 1e3:g} ms, so a"
        " first token comes within that; requests come by chance at a steady rate, by the same"
        f" trace in each company, {TOKENS[0]} to {TOKENS[-1]} tokens each; of what comes, the first"
        f" {SKIP_SECONDS:g} s count for nothing.",
        f"many: {OTHERS} organizations beside the victim, each with as many requests; aggressor:"
        " one with as many as those; first come: all requests of one organization, which is served"
        " in order of arrival; alone and reserved: the victim in the tier `priority`, by itself and"
        " beside the aggressor.",
        f"interactive: {INTERACTIVE:g} requests/s of the tier `default`; filled: with {BATCHES}"
        " requests of the tier `batch` always under way. Idle tokens are those of `first come`,"
        " less the interactive ones.",
        f"All processes share {cores} cores.",
    ]


def _rows(name: str, seen: list[dict[str, Figures]]) -> Iterator[Row]:
    def row(figure: str, scene: str, unit: str, of: Callable[[Figures], float]) -> Row:
        return Row(f"{figure}, {scene}", name, unit, [of(once[scene]) for once in seen])

    def p99(scene: str) -> Row:
        return row("p99 TTFT", scene, "ms", lambda one: one.ttft_ms)

    def tokens(scene: str) -> Row:
        return row("all tokens", scene, "/s", lambda one: one.tokens)

    pairs = [
        (p99("aggressor"), p99("many")),
        (p99("reserved"), p99("alone")),
        (tokens("aggressor"), tokens("first come")),
    ]
    if "filled" in seen[0]:
        gap = [row("p99 ITL", scene, "ms", lambda one: one.gap_ms) for scene in OF_ONE_GATEWAY]
        pairs += [(p99("filled"), p99("interactive")), (gap[1], gap[0]), _idle(name, seen)]
    for ours, theirs in pairs:
        yield from (theirs, ours)
        yield replace(ratio(f"{ours.figure} ÷ {theirs.figure}", ours, theirs), target=name)


def _idle(name: str, seen: list[dict[str, Figures]]) -> tuple[Row, Row]:
    """Return the tokens of the batch tier, and those that would have been left."""
    batch = [once["filled"].by_whom["batch"] for once in seen]
    idle = [once["first come"].tokens - once["filled"].by_whom["interactive"] for once in seen]
    return Row("batch tokens", name, "/s", batch), Row("idle tokens", name, "/s", idle)


class Setup:
    """Gateways before one simulated engine, and all that was asked of them."""

    def __init__(self, engine_url: str, behind: Behind, doors: list[Gateway]) -> None:
        self._engine_url = engine_url
        self._behind = behind
        self._doors = doors
        self._answers = 0
        self._numbers = count()

    def run(self, scene: str, seed: int) -> Figures:
        """Play one scene. Raises BenchmarkFailed unless every request was answered, and whole."""
        typer.echo(f"  {len(self._doors)} gateways, round {seed}: {scene}", err=True)
        chance = Random(seed)
        rates = self._rates(scene)
        arrivals = [
            self._arrival(scene, who, at, chance) for at, who in poisson(rates, SECONDS, seed)
        ]
        loops = [self._batch(chance) for _ in range(BATCHES)] if scene == "filled" else []
        window = TokenRate(self._engine_url, SKIP_SECONDS, SECONDS)
        window.start()
        seen = play(arrivals, loops, until=SECONDS)
        window.join()
        self._answers += len(seen)
        wrong = [one for one in seen if not one.is_whole]
        if wrong:
            raise BenchmarkFailed(f"{scene}: {len(wrong)} of {len(seen)} failed, {wrong[0]}")
        return _figures(seen, "interactive" if "interactive" in rates else "victim", window)

    def _rates(self, scene: str) -> dict[str, float]:
        if scene in OF_ONE_GATEWAY:
            return {"interactive": INTERACTIVE}
        if scene == "alone":
            return {"victim": VICTIM}
        return {"victim": VICTIM} | {f"other_{number}": VICTIM for number in range(OTHERS)}

    def _arrival(self, scene: str, who: str, at: float, chance: Random) -> Arrival:
        """Return a request as the scene has it: whose it is, and how urgent."""
        place = 0
        if who.startswith("other_") and scene != "first come":
            place = 1 + (int(who.removeprefix("other_")) if scene == "many" else 0)
        tier = "priority" if who == "victim" and scene in ("alone", "reserved") else "default"
        return self._request(at, who, place, tier, chance)

    def _batch(self, chance: Random) -> Iterator[Arrival]:
        while True:
            yield self._request(0.0, "batch", 1, "batch", chance)

    def _request(self, at: float, who: str, place: int, tier: str, chance: Random) -> Arrival:
        tokens = chance.choice(TOKENS)
        door, body = self._door(place, chance), self._body(tier, tokens)
        return Arrival(at, who, door, body, tokens=tokens)

    def _door(self, place: int, chance: Random) -> Target:
        door = chance.choice(self._doors).target
        return replace(door, api_key=self._behind.api_keys[place])

    def _body(self, tier: str, tokens: int) -> bytes:
        turn = {"role": "user", "content": f"{next(self._numbers)} {PROMPT}"}
        fields = {"model": MODEL, "messages": [turn], "max_tokens": tokens, "ignore_eos": True}
        return json.dumps(fields | {"stream": True, "service_tier": tier}).encode()

    def close_books(self) -> str:
        """Prove that no slot was taken twice and each request booked once, and say so."""
        most = counter(self._engine_url, "simulated:sequences_max")
        if most > SLOTS:
            raise BenchmarkFailed(f"the engine was given {most:g} sequences at once")
        tally = self._doors[0].wait_until_booked(answers=self._answers, requests=self._answers)
        if tally.duplicates or tally.wrong_charges or tally.others:
            raise BenchmarkFailed(f"the books are wrong: {tally}")
        return (
            f"the engine never had more than {most:g} sequences at once by {len(self._doors)};"
            f" {tally.completed:,} streams were whole, and booked once at the right charge"
        )


def _figures(seen: list[Seen], who: str, window: TokenRate) -> Figures:
    looked_at = [one for one in seen if one.who == who and one.sent_at >= SKIP_SECONDS]
    tokens: dict[str, float] = {}
    for one in seen:
        within = one.tokens_within(SKIP_SECONDS, SECONDS)
        tokens[one.who] = tokens.get(one.who, 0.0) + within
    seconds = SECONDS - SKIP_SECONDS
    return Figures(
        percentile([one.ttft_ms for one in looked_at], 99),
        percentile([gap for one in looked_at for gap in one.gaps_ms], 99),
        window.tokens_per_second,
        {name: made / seconds for name, made in tokens.items()},
    )


@contextmanager
def _set_up(plan: Plan, gateways: int) -> Iterator[Setup]:
    split = Split(ANYWHERE, ANYWHERE)
    port = free_port()
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
            Behind.one(url, folder=plan.folder, split=split, organizations=OTHERS + 1, slots=SLOTS)
        )
        doors = []
        for _ in range(gateways):
            own = free_port()
            child = enter(behind.gateway(folder=plan.folder, cores=ANYWHERE, port=own))
            target = Target("gateway", f"http://127.0.0.1:{own}", behind.api_key, child)
            doors.append(Gateway(target, behind.stand_in_url))
        yield Setup(url, behind, doors)
