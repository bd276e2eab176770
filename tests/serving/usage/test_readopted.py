"""A gateway that starts anew goes on with the leases that its disk says are in force: never more is
spent than was leased, wherever its life before was cut off."""

import asyncio
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.codec import decode
from serving.contract.usage import UsageBatch, UsageEvent
from serving.usage.hold import Hold
from serving.usage.journal import Journal, JournalUnavailable
from serving.usage.meter import Metered, make_event
from serving.usage.treasury import BillingUnreachable, BudgetRefused, MoneyUnavailable
from tests.fixtures.events import metered
from tests.fixtures.fake_billing import FakeBilling
from tests.fixtures.purses import BALANCE, CENT, Clocks, Money

WORST = CENT // 10


@dataclass
class Life:
    """A gateway's money in one life after the other, each on what was on the disk of the one
    before."""

    folder: Path
    limit_nanos: int = 40 * WORST
    clocks: Clocks = field(default_factory=Clocks)
    lives: int = 0
    opened: list[tuple[Metered, Hold]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.billing = FakeBilling(now=lambda: self.clocks.wall)
        self.billing.limits = {BALANCE: self.limit_nanos}

    async def begin(self) -> None:
        journal = Journal(self.folder / str(self.lives) / "journal.sqlite3")
        self.money = Money(self.billing, journal, self.clocks)

    async def kill(self) -> None:
        """End this life with what is on its disk just now, and begin the next."""
        here, there = (self.folder / str(number) for number in (self.lives, self.lives + 1))
        there.mkdir()
        for part in here.glob("journal.sqlite3*"):
            shutil.copy(part, there / part.name)
        await self.money.journal.close()
        self.lives += 1
        self.opened.clear()
        await self.begin()

    def spendable(self) -> int:
        purse = self.money.treasury.purse(BALANCE, self.clocks.wall)
        return purse.spendable(self.clocks.seconds)

    async def poll(self) -> None:
        try:
            await self.money.poll.once()
        except BillingUnreachable:
            return

    async def hold(self) -> Hold | None:
        """Hold a worst case; without money here, as far as two polls bring it."""
        asking = asyncio.create_task(self.money.hold(WORST))
        for _ in range(2):
            await asyncio.sleep(0)
            if not asking.done():
                await self.poll()
        await asyncio.sleep(0)
        self.money.treasury.short.clear()
        if not asking.done():
            asking.cancel()
        try:
            return await asking
        except (asyncio.CancelledError, BudgetRefused, MoneyUnavailable):
            return None

    async def start(self, *, is_written: bool) -> None:
        hold = await self.hold()
        if hold is None:
            return
        one = msgspec.structs.replace(metered(), gateway_id=self.money.journal.gateway_id)
        lost = make_event(one, outcome="gateway_lost")
        self.money.journal.open(one.event_id, lambda: lost, hold.parts)
        if is_written:
            self.money.journal._writer.hand_over_opened()
            await self.money.journal._ask(lambda db: None)
        self.opened.append((one, hold))

    async def end(self, place: int, share: int, *, is_durable: bool) -> None:
        if not self.opened:
            return
        one, hold = self.opened.pop(place % len(self.opened))
        one = msgspec.structs.replace(one, received_at=self.clocks.wall)
        charges = hold.charge(WORST * share // 10)
        committing = self.money.journal.commit(
            make_event(one, outcome="completed", charges=charges)
        )
        if is_durable:
            await committing

    async def ship(self) -> None:
        if self.money.is_down:
            return
        rows = await self.money.journal.next_done(100)
        if rows:
            batch = tuple(msgspec.Raw(row.body) for row in rows)
            self.billing.book(UsageBatch(self.money.journal.gateway_id, batch))
            await self.money.journal.keep(rows, self.billing.lineage)
            for row in rows:
                self.money.poll.acknowledged(decode(row.body, UsageEvent).charges)

    async def do(self, deed: tuple[Any, ...]) -> None:
        match deed:
            case ("start", is_written):
                await self.start(is_written=is_written)
            case ("end", place, share, is_durable):
                await self.end(place, share, is_durable=is_durable)
            case ("down", is_down):
                self.money.is_down = is_down
            case ("lose_replies", loses):
                self.money.loses_replies = loses
            case ("pass", seconds):
                self.clocks.pass_(seconds)
            case ("recall",):
                for lease in self.billing.books.leases.values():
                    lease.recalled = True
            case ("stop",):
                with suppress(BillingUnreachable):
                    await self.money.poll.give_all_back()
                await self.kill()
            case (name,):
                await getattr(self, name)()
        await self.check()

    async def check(self) -> None:
        """What was charged, booked or on its way, is within what billing set aside for it."""
        rows = await self.money.journal.next_done(1_000)
        coming = Counter[str]()
        for row in rows:
            if row.event_id not in self.billing.events:
                for charge in row.charges:
                    coming[charge.lease_id] += charge.charged_nanos
        for lease_id, lease in self.billing.books.leases.items():
            spent = lease.settled_nanos + coming[lease_id]
            assert spent <= lease.keep_nanos <= lease.granted.granted_nanos
            assert not (lease.closed and coming[lease_id])
        posted = sum(self.billing.books.posted.values())
        assert posted + coming.total() <= self.limit_nanos


DEEDS = st.one_of(
    st.tuples(st.just("start"), st.booleans()),
    st.tuples(st.just("start"), st.booleans()),
    st.tuples(st.just("end"), st.integers(0, 9), st.integers(0, 10), st.booleans()),
    st.tuples(st.just("pass"), st.sampled_from((0.6, 30.0, 1_000.0))),
    st.tuples(st.sampled_from(("poll", "ship", "kill", "kill", "recall", "stop"))),
    st.tuples(st.sampled_from(("down", "lose_replies")), st.booleans()),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(DEEDS, max_size=25))
def test_never_more_is_spent_than_leased_wherever_a_life_is_cut_off(
    deeds: list[tuple[Any, ...]],
) -> None:
    async def live(folder: Path) -> None:
        life = Life(folder)
        await life.begin()
        for deed in deeds:
            await life.do(deed)
        await life.money.journal.close()

    with TemporaryDirectory() as folder:
        asyncio.run(live(Path(folder)))


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path, limit_nanos=100_000 * WORST)


async def spent(life: Life, share: int = 10) -> None:
    await life.start(is_written=False)
    await life.end(0, share, is_durable=True)


async def test_a_new_life_serves_from_what_is_left_of_its_leases(life: Life) -> None:
    await life.begin()
    await spent(life)
    left = life.spendable()
    await life.kill()
    life.money.is_down = True
    assert life.spendable() == left > 0
    await life.poll()
    assert not life.money.poll.has_never_been_answered
    await spent(life)
    assert life.spendable() == left - WORST
    life.clocks.pass_(901.0)
    assert life.spendable() == 0


async def test_the_worst_case_of_what_was_under_way_is_left_out_in_every_later_life(
    life: Life,
) -> None:
    await life.begin()
    await spent(life)
    await life.start(is_written=True)
    left = life.spendable()
    for _ in range(2):
        await life.kill()
        assert life.spendable() == left > 0


async def test_what_was_given_back_is_not_taken_up_again(life: Life) -> None:
    await life.begin()
    await spent(life)
    [lease] = life.billing.books.leases.values()
    lease.recalled = True
    life.clocks.pass_(0.6)
    await life.poll()
    life.money.loses_replies = True
    life.clocks.pass_(0.6)
    await life.poll()
    assert lease.stopped
    await life.kill()
    assert life.money.poll.leases[lease.granted.lease_id].is_stopped


async def test_a_gateway_that_ends_while_billing_is_away_keeps_its_leases(life: Life) -> None:
    await life.begin()
    await spent(life)
    life.money.is_down = True
    await life.do(("stop",))
    assert life.spendable() > 0


async def test_a_clock_that_went_back_takes_up_nothing(life: Life) -> None:
    await life.begin()
    await spent(life)
    assert life.spendable() > 0
    life.clocks.wall -= timedelta(seconds=5)
    await life.kill()
    assert life.spendable() == 0


async def test_nothing_is_told_to_billing_that_the_disk_would_not_take(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    await life.begin()
    await spent(life)
    [lease] = life.billing.books.leases.values()
    lease.recalled = True
    life.clocks.pass_(0.6)
    await life.poll()

    async def unavailable(lease_ids: list[str]) -> None:
        raise JournalUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(life.money.journal, "end_leases", unavailable)
        await life.poll()
        assert not lease.stopped
    await life.poll()
    assert lease.stopped
