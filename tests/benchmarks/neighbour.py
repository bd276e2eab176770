"""A neighbour under attack: what an organization is served beside one that does its worst by the
scheduler, on two gateways that share a replica."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from random import Random

import typer

from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import ANYWHERE, Split
from tests.benchmarks.mock import MODEL
from tests.benchmarks.open_loop import Arrival, Seen, play
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import free_port, running
from tests.benchmarks.report import Row, Table
from tests.benchmarks.stage import START_SECONDS, Behind, Gateway
from tests.benchmarks.stand_in import VARIANT_ID
from tests.benchmarks.target import Target

GATEWAYS = 2
SLOTS = 16
ITL_SECONDS = 0.04
TOKENS = 16
SECONDS = 10.0
SKIP_SECONDS = 3.0
"""At the beginning, until queues are what they will be."""
QUEUE_SECONDS = 3.0
NEIGHBOURS = 24
"""Requests of the neighbour that are always under way; of its schemas, 2."""
FLOOD = 48
SCENES = ("alone", "wide", "priority", "schemas alone", "schemas")


def measure(plan: Plan) -> Table:
    """Return what the neighbour is served in each company, and by what part less than alone."""
    with _set_up(plan) as setup:
        seen = [
            {scene: setup.run(scene, seed) for scene in SCENES}
            for seed in range(1, plan.rounds + 1)
        ]
    rows = [
        Row("answers a second", scene, "/s", [one[scene][0] for one in seen]) for scene in SCENES
    ]
    rows += [Row("answered 200", scene, "%", [one[scene][1] for one in seen]) for scene in SCENES]
    for attack, alone in (("wide", 0), ("priority", 0), ("schemas", 3)):
        theirs, ours = rows[alone], rows[SCENES.index(attack)]
        kept = [a / b if b else 0.0 for a, b in zip(ours.values, theirs.values, strict=True)]
        rows.append(Row("answers ÷ alone", attack, "", kept))
    title = f"A neighbour under attack: {GATEWAYS} gateways, {SLOTS} slots, {plan.rounds} rounds"
    return Table(title, rows, [], _remarks())


def _remarks() -> list[str]:
    return [
        f"The neighbour has {NEIGHBOURS} requests of {TOKENS} tokens under way in the tier"
        f" `default`, each token taking {ITL_SECONDS * 1e3:g} ms; who would wait longer than"
        f" {QUEUE_SECONDS:g} s is refused.",
        "wide: another organization on four connections to each gateway, `n: 8, max_tokens: 1`.",
        f"priority: another organization with {FLOOD} requests like those in the tier `priority`.",
        "schemas: another organization on 16 connections, each request with a schema of its own"
        " that takes half a second to compile; the two connections of the neighbour bring quick"
        " ones.",
    ]


class Setup:
    """Gateways before one simulated engine."""

    def __init__(self, behind: Behind, doors: list[Gateway]) -> None:
        self._behind = behind
        self._doors = doors
        self._numbers = count()

    def run(self, scene: str, seed: int) -> tuple[float, float]:
        """Return the neighbour's answers a second, and what part of its requests was answered."""
        typer.echo(f"  round {seed}: {scene}", err=True)
        chance = Random(seed)
        loops = [
            self._neighbour(scene, chance) for _ in range(2 if "schemas" in scene else NEIGHBOURS)
        ]
        attackers = {"wide": 4 * GATEWAYS, "priority": FLOOD, "schemas": 16}.get(scene, 0)
        loops += [self._attacker(scene, number, chance) for number in range(attackers)]
        mine = [one for one in play([], loops, until=SECONDS) if one.who == "neighbour"]
        late = [one for one in mine if one.sent_at >= SKIP_SECONDS]
        if not late:
            raise BenchmarkFailed(f"{scene}: the neighbour asked nothing after the beginning")
        served = [one for one in late if one.is_whole and one.ended_at < SECONDS]
        return len(served) / (SECONDS - SKIP_SECONDS), 100 * _part_served(late)

    def _neighbour(self, scene: str, chance: Random) -> Iterator[Arrival]:
        while True:
            schema = {"title": f"quick {next(self._numbers)}"} if "schemas" in scene else None
            yield self._arrival("neighbour", 0, chance.choice(self._doors), schema)

    def _attacker(self, scene: str, number: int, chance: Random) -> Iterator[Arrival]:
        door = self._doors[number % GATEWAYS]
        while True:
            if scene == "wide":
                yield self._arrival("attacker", 1, door, n=8, max_tokens=1)
            elif scene == "priority":
                yield self._arrival("attacker", 1, door, service_tier="priority")
            else:
                yield self._arrival("attacker", 1, door, {"title": f"slow {next(self._numbers)}"})

    def _arrival(
        self, who: str, place: int, door: Gateway, schema: object = None, **fields: object
    ) -> Arrival:
        turn = {"role": "user", "content": f"{next(self._numbers)} How much water flows?"}
        body = {"model": MODEL, "messages": [turn], "max_tokens": TOKENS, "ignore_eos": True}
        if schema is not None:
            named = {"name": "answer", "schema": {"type": "object"} | dict(schema)}  # type: ignore[call-overload]
            body |= {"response_format": {"type": "json_schema", "json_schema": named}}
        target = replace(door.target, api_key=self._behind.api_keys[place])
        data = json.dumps(body | {"stream": True} | fields).encode()
        return Arrival(0.0, who, target, data, tokens=TOKENS)


def _part_served(seen: list[Seen]) -> float:
    return sum(one.is_whole for one in seen) / len(seen)


@contextmanager
def _set_up(plan: Plan) -> Iterator[Setup]:
    port = free_port()
    command = [sys.executable, "-m", "serving.engine.simulated", "--port", str(port)]
    command += ["--served-model-name", VARIANT_ID, "--slots", str(SLOTS)]
    command += ["--itl-seconds", str(ITL_SECONDS)]
    split = Split(ANYWHERE, ANYWHERE)
    with ExitStack() as stack:
        enter = stack.enter_context
        engine = enter(
            running(f"engine-{port}", command, folder=plan.folder, cores=ANYWHERE, env={})
        )
        url = f"http://127.0.0.1:{port}"
        engine.wait_until_answers(f"{url}/health", seconds=START_SECONDS)
        behind = enter(
            Behind.one(
                url, folder=plan.folder, split=split, organizations=2, slots=SLOTS,
                queue_seconds=QUEUE_SECONDS,
            )
        )  # fmt: skip
        doors = []
        for _ in range(GATEWAYS):
            own = free_port()
            child = enter(behind.gateway(folder=plan.folder, cores=ANYWHERE, port=own))
            target = Target("gateway", f"http://127.0.0.1:{own}", behind.api_key, child)
            doors.append(Gateway(target, behind.stand_in_url))
        yield Setup(behind, doors)
