"""A database with organizations in it, and the processes that work on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.books.server import Database, Server
from tests.benchmarks.books.worker import Worker, workers
from tests.benchmarks.failure import BenchmarkFailed

GATEWAYS = ("gw_1", "gw_2")
"""Each posts its batches to a process of its own, as to a control of two."""


@dataclass(frozen=True)
class Stage:
    """`feeders` take in batches, one process a gateway; the `others` are for what runs beside."""

    database: Database
    feeders: list[Worker]
    others: list[Worker]

    def each_gateway(self, work: str, *args: Any) -> list[Any]:
        """Let each feeder do its gateway's part of some work, at once; return what they return."""
        turns = [
            feeder.start(work, gateway, *args)
            for feeder, gateway in zip(self.feeders, GATEWAYS, strict=True)
        ]
        return [turn.result() for turn in turns]

    def prove(self, accepted: int) -> str:
        """Prove the books right and complete, and return the sentence that says so.

        Raises BenchmarkFailed.
        """
        worker = self.others[0]
        stored = worker.run("proof.count_events")
        if stored != accepted:
            raise BenchmarkFailed(f"{accepted} events were accepted, {stored} are there")
        failed, held = worker.run("proof.failed_checks")
        if failed:
            raise BenchmarkFailed("the books are wrong: " + "; ".join(failed))
        return f"{stored:,} events are there once, and all {held} checks of the books hold"


@contextmanager
def stage(
    server: Server, organizations: int, *, keys_each: int = 1, others: int = 2
) -> Iterator[Stage]:
    """Make organizations in a database of their own, which is dropped in the end."""
    name = f"books_{organizations}"
    database = server.database(name)
    with workers(database, len(GATEWAYS) + others) as hands:
        hands[0].run("world.prepare_database")
        hands[0].run("world.make_world", organizations, keys_each)
        yield Stage(database, hands[: len(GATEWAYS)], hands[len(GATEWAYS) :])
    server.drop(name)
