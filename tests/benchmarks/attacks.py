"""Attacks: what a neighbour sees, and what holds the loop, while another does its worst."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, percentile
from tests.fixtures.attacks import BODIES
from tests.fixtures.beside import Seen, beside

SECONDS = 3.0
REMARKS = (
    "The neighbour asks for one token of an engine that takes 20 ms to it, on one connection; the"
    " attacker posts on three. Each round of an attack follows one without.",
    "A stall is the CPU time of the longest callback of the loop, which runs gateway, control and"
    " billing; asyncio's own loop, in Python, holds more than production's.",
)


def measure(plan: Plan) -> Table:
    """Return for each attack the neighbour's p99 with it ÷ without, and the longest stall."""
    rows = asyncio.run(_measure(plan.rounds))
    title = f"Attacks: {len(BODIES)} bodies, {plan.rounds} rounds of {SECONDS:g} s each"
    return Table(title, rows, ["every request of the neighbour was answered 200"], REMARKS)


async def _measure(rounds: int) -> list[Row]:
    rows = []
    for place, name in enumerate(BODIES, start=1):
        typer.echo(f"  {place} of {len(BODIES)}: {name}", err=True)
        rows += await _attack(name, rounds)
    return rows


async def _attack(name: str, rounds: int) -> list[Row]:
    dialect, make = BODIES[name]
    body, alone, under = make(), list[Seen](), list[Seen]()
    with TemporaryDirectory(prefix="penstock-attack-") as folder:
        async with beside(Path(folder)) as org:
            for _ in range(rounds):
                alone.append(await org.alone(SECONDS))
                under.append(await org.under(dialect.path, body, SECONDS))
    ratios = [_p99_ms(b) / _p99_ms(a) for a, b in zip(alone, under, strict=True)]
    return [
        Row(name, "p99 alone", "ms", [_p99_ms(seen) for seen in alone]),
        Row(name, "p99 with it ÷ alone", "", ratios),
        Row(name, "longest stall", "ms", [seen.longest.seconds * 1e3 for seen in under]),
    ]


def _p99_ms(seen: Seen) -> float:
    if set(seen.neighbour.statuses) != {200}:
        raise BenchmarkFailed(f"the neighbour was answered {set(seen.neighbour.statuses)}")
    return percentile(seen.neighbour.seconds, 99) * 1e3
