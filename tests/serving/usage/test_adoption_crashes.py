"""Wherever a gateway crashes, `posted + pending <= limit`, and no lease is both returned and
adopted."""

import asyncio
import sqlite3
from collections.abc import Coroutine
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.fixtures.restarts import RestartingGateway


def delete_leases(path: Path) -> None:
    """Delete all records of leases from a journal, and no event."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM leases")


class Crashes(RuleBasedStateMachine):
    """Requests, lease calls and shipments in any order, with a crash after any step of them."""

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.folder = TemporaryDirectory()
        self.gateway = RestartingGateway(Path(self.folder.name))
        self.run(self.gateway.start())

    def run(self, work: Coroutine[None, None, None]) -> None:
        """Do some work, restart after a crash in it, and check what has to hold."""
        self.runner.run(self._done(work))

    async def _done(self, work: Coroutine[None, None, None]) -> None:
        await work
        if self.gateway.is_crashed:
            await self.gateway.restart()
        await self.gateway.check()

    @rule(steps=st.integers(0, 5))
    def order_a_crash(self, steps: int) -> None:
        self.gateway.crash_after(steps)

    @rule(is_written=st.booleans())
    def begin(self, is_written: bool) -> None:
        self.run(self.gateway.begin(is_written=is_written))

    @rule(place=st.integers(0, 9), share=st.integers(0, 10), is_durable=st.booleans())
    def end(self, place: int, share: int, is_durable: bool) -> None:
        self.run(self.gateway.end(place, share, is_durable=is_durable))

    @rule()
    def spend(self) -> None:
        self.run(self.gateway.spend())

    @rule()
    def poll(self) -> None:
        self.run(self.gateway.poll())

    @rule()
    def ship(self) -> None:
        self.run(self.gateway.ship())

    @rule()
    def recall(self) -> None:
        self.gateway.recall()

    @rule(seconds=st.sampled_from((0.6, 0.6, 30.0, 1_000.0)))
    def pass_time(self, seconds: float) -> None:
        self.gateway.clocks.pass_(seconds)

    @rule(is_down=st.booleans())
    def interrupt(self, is_down: bool) -> None:
        self.gateway.money.is_down = is_down

    @rule(loses=st.booleans())
    def lose_replies(self, loses: bool) -> None:
        self.gateway.money.loses_replies = loses

    @rule()
    def stop(self) -> None:
        self.run(self.gateway.stop())

    @rule()
    def kill(self) -> None:
        self.run(self.gateway.restart())

    @rule()
    def kill_and_lose_records(self) -> None:
        self.run(self.gateway.restart(delete_leases))

    @rule(seconds=st.sampled_from((-60, -5, 120)))
    def kill_and_set_the_clock(self, seconds: int) -> None:
        self.run(self.gateway.flush())
        self.gateway.clocks.wall += timedelta(seconds=seconds)
        self.run(self.gateway.restart())
        if seconds < 0:
            assert not self.gateway.active()

    def teardown(self) -> None:
        if hasattr(self, "gateway"):
            self.runner.run(self.gateway.money.journal.close())
            self.runner.close()
            self.folder.cleanup()


Crashes.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestCrashes = Crashes.TestCase
