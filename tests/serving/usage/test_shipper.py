"""Shipping loses and doubles nothing, and fills a restored database again."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from serving.contract.codec import decode
from serving.contract.usage import LeaseCharge, UsageBatch, UsageEvent, UsageReceipt
from serving.usage.clock import GatewayClock
from serving.usage.control_api import ControlApi, DatabaseIdentityCheck
from serving.usage.journal import Journal
from serving.usage.shipper import ShipmentFailed, UsageShipper, ship_batch
from tests.fixtures.events import event
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.gateway import CREDENTIAL


class Receiver:
    """Billing that can be down, and forgets nothing."""

    def __init__(self) -> None:
        self.seen: dict[str, UsageEvent] = {}
        self.sizes: list[int] = []
        self.failures = 0
        self.lost_answers = 0
        self.limit = 10**6
        self.lineage = "lineage_1"
        self.finished: list[str] = []
        """The databases to which everything kept has been sent again."""

    async def __call__(self, batch: UsageBatch) -> UsageReceipt:
        if batch.is_last:
            assert (batch.resent, batch.events) == (True, ())
            self.finished.append(batch.lineage)
            return UsageReceipt(0, 0, self.lineage)
        self.sizes.append(len(batch.events))
        if self.failures:
            self.failures -= 1
            raise ShipmentFailed("down")
        if len(batch.events) > self.limit:
            raise ShipmentFailed("too big", too_big=True)
        events = [decode(raw, UsageEvent) for raw in batch.events]
        fresh = {one.event_id: one for one in events if one.event_id not in self.seen}
        self.seen |= fresh
        if self.lost_answers:
            self.lost_answers -= 1
            raise ShipmentFailed("answer lost")
        return UsageReceipt(len(fresh), len(events) - len(fresh), self.lineage)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "j")
    yield opened
    await opened.close()


def make_shipper(journal: Journal, send, on_acknowledged=lambda charges: None) -> UsageShipper:
    lineage = DatabaseIdentityCheck(journal.lineage, journal.record_lineage)
    return UsageShipper(journal, send, on_acknowledged, lineage)


async def test_rows_stay_until_acknowledged_through_outages_and_lost_answers(
    journal: Journal,
) -> None:
    receiver = Receiver()
    acknowledged: list[LeaseCharge] = []
    shipper = make_shipper(journal, receiver, acknowledged.extend)
    sent = [event(charged=5) for _ in range(20)]
    for one in sent:
        await journal.commit(one)
    receiver.failures, receiver.lost_answers = 1, 1
    for _ in range(2):
        with pytest.raises(ShipmentFailed):
            await shipper.ship_all()
        assert journal.unacknowledged_count == 20
    await shipper.ship_all()
    assert set(receiver.seen) == {one.event_id for one in sent}
    assert len(acknowledged) == 20
    assert journal.unacknowledged_count == 0
    assert shipper.counts.duplicates == 20


async def test_a_batch_that_is_refused_as_too_big_is_halved(journal: Journal) -> None:
    receiver = Receiver()
    receiver.limit = 40
    shipper = make_shipper(journal, receiver, lambda charges: None)
    await asyncio.gather(*(journal.commit(event()) for _ in range(100)))
    shipper._limit = 100
    while journal.unacknowledged_count:
        try:
            await shipper.ship_all()
        except ShipmentFailed:
            continue
    assert len(receiver.seen) == 100


async def test_shipping_ends_though_requests_go_on_ending(journal: Journal) -> None:
    receiver = Receiver()

    async def send(batch: UsageBatch) -> UsageReceipt:
        if batch.events:
            await journal.commit(event())
        return await receiver(batch)

    shipper = make_shipper(journal, send, lambda charges: None)
    await journal.commit(event())
    await asyncio.wait_for(shipper.ship_all(), timeout=60)
    assert receiver.sizes == [1]
    assert journal.unacknowledged_count == 1


async def test_a_restored_database_gets_again_what_it_lost(journal: Journal) -> None:
    receiver = Receiver()
    shipper = make_shipper(journal, receiver)
    for _ in range(3):
        await asyncio.gather(*(journal.commit(event()) for _ in range(10)))
        await shipper.ship_all()
    before = dict(receiver.seen)
    assert len(before) == 30
    receiver.seen, receiver.lineage = {}, "restored"
    await journal.commit(event())
    for _ in range(3):
        await shipper.ship_all()
    assert before.items() <= receiver.seen.items()
    assert len(receiver.seen) == 31
    assert shipper.counts.sent_again == 30
    assert receiver.finished == ["lineage_1", "restored"]
    sent = len(receiver.sizes)
    await shipper.ship_all()
    assert len(receiver.sizes) == sent
    assert receiver.finished == ["lineage_1", "restored"]


async def test_only_what_another_database_has_acknowledged_is_marked_as_resent(
    journal: Journal,
) -> None:
    receiver, marks = Receiver(), []

    async def send(batch: UsageBatch) -> UsageReceipt:
        marks.append((len(batch.events), batch.resent, batch.is_last, batch.lineage))
        return await receiver(batch)

    shipper = make_shipper(journal, send)
    await journal.commit(event())
    await shipper.ship_all()
    receiver.lineage = "restored"
    shipper._lineage.observe("restored")
    await journal.commit(event())
    await shipper.ship_remaining()
    assert marks == [
        (1, False, False, ""),
        (0, True, True, "lineage_1"),
        (1, False, False, "restored"),
        (1, True, False, "restored"),
        (0, True, True, "restored"),
    ]


async def test_the_next_life_goes_on_sending_again(tmp_path: Path) -> None:
    receiver = Receiver()
    journal = Journal(tmp_path / "j")
    shipper = make_shipper(journal, receiver)
    await asyncio.gather(*(journal.commit(event()) for _ in range(10)))
    await shipper.ship_all()
    receiver.seen, receiver.lineage = {}, "restored"
    shipper._lineage.observe("restored")
    await journal.close()
    second = Journal(tmp_path / "j")
    await make_shipper(second, receiver).ship_all()
    assert len(receiver.seen) == 10
    await second.close()


async def test_what_is_sent_again_is_acknowledged_to_no_lease(journal: Journal) -> None:
    receiver, acknowledged = Receiver(), []
    shipper = make_shipper(journal, receiver, acknowledged.extend)
    await journal.commit(event(charged=5))
    await shipper.ship_all()
    shipper._lineage.observe("restored")
    await shipper.ship_all()
    assert receiver.sizes == [1, 1]
    assert len(acknowledged) == 1


async def test_many_small_batches_are_sent_again_in_few(journal: Journal) -> None:
    receiver = Receiver()
    shipper = make_shipper(journal, receiver)
    for _ in range(50):
        await journal.commit(event())
        await shipper.ship_all()
    receiver.limit = 20
    shipper._lineage.observe("restored")
    shipper._limit = 20
    receiver.sizes.clear()
    await shipper.ship_all()
    assert receiver.sizes == [20, 20, 10]


async def test_a_clock_that_is_ahead_keeps_its_events_until_it_is_right(journal: Journal) -> None:
    control = FakeControl()
    async with control.serving(), aiohttp.ClientSession() as session:
        api = ControlApi(session, control.url, CREDENTIAL, GatewayClock())
        shipper = make_shipper(journal, partial(ship_batch, api))
        await journal.commit(event())
        shipper._wall = lambda: datetime.now(UTC) + timedelta(minutes=6)
        with pytest.raises(ShipmentFailed, match="clock_ahead"):
            await shipper.ship_all()
        assert (api.clock_ahead_count, journal.unacknowledged_count) == (1, 1)
        shipper._wall = lambda: datetime.now(UTC)
        await shipper.ship_all()
        assert len(control.billing.events) == 1
        assert control.billing.batches[-1].sent_at is not None
