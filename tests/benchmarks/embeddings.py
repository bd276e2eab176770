"""Texts embedded a second by real vLLM: through the gateway, over straight to the engine."""

import json
from collections.abc import Iterator
from typing import Literal

from infra.local.config import DEMO_EMBEDDER_WEIGHTS
from tests.benchmarks import stand_in, wrk
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import Cores
from tests.benchmarks.mock import MODEL
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, ratio
from tests.benchmarks.stage import Gateway, gateway
from tests.benchmarks.target import Target
from tests.benchmarks.through_vllm import beside, vllm

BATCH = 32
CONNECTIONS = 4
SECONDS = 10
WARM_UP_SECONDS = 3
BODIES = 64
TEXT = "A penstock is the gated, metered pipe that feeds a turbine: say how much water flows."
Encoding = Literal["base64", "float"]
ENCODINGS: tuple[Encoding, ...] = ("base64", "float")
"""What the official clients ask for, and what the route gives by itself."""


def measure(plan: Plan) -> Table:
    """Return texts a second both ways and their ratio, pair by pair; the order alternates."""
    config = json.loads((DEMO_EMBEDDER_WEIGHTS / "config.json").read_text())
    with (
        vllm(plan, DEMO_EMBEDDER_WEIGHTS, "embed") as direct,
        gateway(
            direct.base_url,
            folder=plan.folder,
            split=beside(plan.split),
            dimensions=config["hidden_size"],
        ) as own,
    ):
        race = _Race(direct, own, plan.split.measured)
        race.warm_up()
        rows = [row for encoding in ENCODINGS for row in race.rows(encoding, plan.rounds)]
        check = race.close_books()
    return Table(
        f"Embeddings through vLLM: batches of {BATCH}, {CONNECTIONS} at once, {plan.rounds} pairs",
        rows,
        [check],
        ["The engine has cores of its own; gateway and load share the others."],
    )


class _Race:
    """Runs of the same load, straight to the engine and through the gateway."""

    def __init__(self, direct: Target, own: Gateway, cores: Cores) -> None:
        self.direct = direct
        self.own = own
        self.cores = cores
        self.answers = 0

    def warm_up(self) -> None:
        """Let engine and gateway see the load once."""
        for target in (self.direct, self.own.target):
            self._send(target, "base64", WARM_UP_SECONDS)

    def rows(self, encoding: Encoding, rounds: int) -> Iterator[Row]:
        """Return texts a second straight and through, and their ratio."""
        seen: dict[str, list[float]] = {self.direct.name: [], self.own.target.name: []}
        for number in range(rounds):
            pair = [self.direct, self.own.target]
            for target in pair if number % 2 == 0 else reversed(pair):
                seen[target.name].append(self._send(target, encoding, SECONDS) * BATCH)
        straight, through = (
            Row(f"texts as {encoding}", name, "/s", values) for name, values in seen.items()
        )
        yield from (straight, through)
        yield ratio(f"ratio as {encoding}, pair by pair", through, straight)

    def _send(self, target: Target, encoding: Encoding, seconds: int) -> float:
        model = stand_in.VARIANT_ID if target is self.direct else MODEL
        load = wrk.Load(
            [_body(number, model, encoding) for number in range(BODIES)],
            CONNECTIONS,
            seconds,
            f'"index":{BATCH - 1},',
            path="/v1/embeddings",
        )
        outcome = wrk.run(
            target.base_url + load.path, load, headers=target.headers, cores=self.cores
        )
        outcome.require_right(target.name)
        if target is self.own.target:
            self.answers += outcome.answers
        return outcome.answers_per_second

    def close_books(self) -> str:
        """Prove that what was answered is booked, and return the sentence that says so."""
        tally = self.own.wait_until_booked(answers=self.answers, requests=0)
        if tally.duplicates or tally.wrong_charges or tally.output_tokens:
            raise BenchmarkFailed(f"the books are wrong: {tally}")
        return (
            f"every answer held {BATCH} vectors; the {self.answers:,} through the gateway are"
            " booked, none twice, every charge right, no output token among them"
        )


def _body(number: int, model: str, encoding: Encoding) -> bytes:
    texts = [f"{number}.{place} {TEXT}" for place in range(BATCH)]
    return json.dumps({"model": model, "input": texts, "encoding_format": encoding}).encode()
