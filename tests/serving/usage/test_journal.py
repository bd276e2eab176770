"""The journal survives its process; shipping loses and doubles nothing."""

import asyncio
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from serving.contract.codec import decode
from serving.contract.ids import new_id
from serving.contract.usage import LeaseCharge, UsageBatch, UsageEvent, UsageReceipt
from serving.usage.journal import BEHIND_SECONDS, Journal, JournalUnavailable
from serving.usage.meter import Metered, Tokens, make_event
from serving.usage.ship import ShipmentFailed, Shipper
from tests.support.catalog import price


def metered() -> Metered:
    return Metered(
        event_id=new_id(),
        gateway_id="gw_1",
        organization_id="org_a",
        project_id="proj_a",
        key_id="key_a",
        model_id="mdl",
        deployment_id="dep",
        price=price(),
        endpoint="chat.completions",
        received_at=datetime.now(UTC),
        streamed=False,
        client_request_id=None,
    )


def event(charged: int = 0) -> UsageEvent:
    charges = (LeaseCharge("org_a", "lease_1", charged),) if charged else ()
    tokens = Tokens(input=3, output=4)
    return make_event(metered(), outcome="completed", tokens=tokens, charges=charges)


class Receiver:
    """Billing that can be down, and forgets nothing."""

    def __init__(self) -> None:
        self.seen: dict[str, UsageEvent] = {}
        self.sizes: list[int] = []
        self.failures = 0
        self.lost_answers = 0
        self.limit = 10**6

    async def __call__(self, batch: UsageBatch) -> UsageReceipt:
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
        return UsageReceipt(len(fresh), len(events) - len(fresh))


async def test_a_request_that_was_open_when_its_gateway_died_is_reported_lost(
    tmp_path: Path,
) -> None:
    first = Journal(tmp_path / "j")
    lost = make_event(metered(), outcome="gateway_lost", replica_id="rep_1")
    done = event(charged=7)
    first.note_lease("lease_1", "org_a", 100)
    first.open(lost)
    first.open(replace_outcome(done))
    await first.commit(done)
    await first.close()
    second = Journal(tmp_path / "j")
    rows = dict(await second.next_done(10))
    assert decode(rows[lost.event_id], UsageEvent).outcome == "gateway_lost"
    assert decode(rows[done.event_id], UsageEvent) == done
    [lease] = second.left_leases
    assert (lease.charged_nanos, lease.unacknowledged) == (7, 1)
    assert second.gateway_id == first.gateway_id
    await second.close()


def replace_outcome(done: UsageEvent) -> UsageEvent:
    return msgspec.structs.replace(done, outcome="gateway_lost", charges=())


async def test_commits_that_come_together_are_written_together(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await asyncio.gather(*(journal.commit(event()) for _ in range(500)))
    assert journal.done_rows == 500
    assert len(await journal.next_done(1_000)) == 500
    await journal.close()


async def test_what_many_requests_take_of_one_lease_is_added_up(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.note_lease("lease_1", "org_a", 1_000)
    await asyncio.gather(*(journal.commit(event(charged=3)) for _ in range(50)))
    await journal.close()
    second = Journal(tmp_path / "j")
    [lease] = second.left_leases
    assert (lease.charged_nanos, lease.unacknowledged) == (150, 50)
    await second.close()


async def test_an_open_row_is_written_though_nobody_waits_for_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.open(make_event(metered(), outcome="gateway_lost"))
    await asyncio.sleep(10 * BEHIND_SECONDS)
    [state] = await journal._ask(lambda db: db.execute("SELECT state FROM events").fetchone())
    assert state == "open"
    await journal.close()


async def test_what_nobody_waits_for_is_tried_again_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.usage.journal.PROBE_SECONDS", 0.01)
    journal = Journal(tmp_path / "j")
    await journal._ask(lambda db: db.execute("PRAGMA query_only = 1").fetchall())
    journal.commit_later(event())
    with pytest.raises(JournalUnavailable):
        await journal.commit(event())
    assert not journal.healthy
    journal._connection.execute("PRAGMA query_only = 0")
    await asyncio.wait_for(journal.committed.wait(), timeout=5)
    assert journal.healthy
    assert journal.done_rows == 1
    await journal.close()


async def test_only_one_gateway_uses_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        Journal(tmp_path / "j", busy_seconds=0.1)
    await journal.close()


async def test_rows_stay_until_acknowledged_through_outages_and_lost_answers(
    tmp_path: Path,
) -> None:
    journal, receiver = Journal(tmp_path / "j"), Receiver()
    acknowledged: list[LeaseCharge] = []
    shipper = Shipper(journal, receiver, acknowledged.extend)
    sent = [event(charged=5) for _ in range(20)]
    for one in sent:
        await journal.commit(one)
    receiver.failures, receiver.lost_answers = 1, 1
    for _ in range(2):
        with pytest.raises(ShipmentFailed):
            await shipper.ship_all()
        assert journal.done_rows == 20
    await shipper.ship_all()
    assert set(receiver.seen) == {one.event_id for one in sent}
    assert len(acknowledged) == 20
    assert journal.done_rows == 0
    assert shipper.counts.duplicates == 20
    await journal.close()


async def test_a_batch_that_is_refused_as_too_big_is_halved(tmp_path: Path) -> None:
    journal, receiver = Journal(tmp_path / "j"), Receiver()
    receiver.limit = 40
    shipper = Shipper(journal, receiver, lambda charges: None)
    await asyncio.gather(*(journal.commit(event()) for _ in range(100)))
    shipper._limit = 100
    while journal.done_rows:
        try:
            await shipper.ship_all()
        except ShipmentFailed:
            continue
    assert len(receiver.seen) == 100
    await journal.close()


async def test_shipping_ends_though_requests_go_on_ending(tmp_path: Path) -> None:
    journal, receiver = Journal(tmp_path / "j"), Receiver()

    async def send(batch: UsageBatch) -> UsageReceipt:
        await journal.commit(event())
        return await receiver(batch)

    shipper = Shipper(journal, send, lambda charges: None)
    await journal.commit(event())
    await asyncio.wait_for(shipper.ship_all(), timeout=5)
    assert receiver.sizes == [1]
    assert journal.done_rows == 1
    await journal.close()
