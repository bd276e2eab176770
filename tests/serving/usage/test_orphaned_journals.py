"""A journal that nobody locks is shipped by whoever starts next, and its leases go back."""

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from serving.contract.environment import ConfigError
from serving.contract.idempotency import ClaimEnding
from serving.file_lock import FileLocked
from serving.usage import orphaned_journals
from serving.usage.clock import GatewayClock
from serving.usage.control_api import ControlApi, DatabaseIdentityCheck
from serving.usage.journal import JOURNAL, Journal
from serving.usage.meter import make_event
from serving.usage.orphaned_journals import (
    NotShipped,
    OrphanedJournals,
    Unshipped,
    save_credential,
    ship_folder,
    unshipped,
)
from tests.fixtures.events import event, metered
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.gateway import CREDENTIAL
from tests.fixtures.waiting import eventually

CLAIM = ClaimEnding("org_a", "0199a000-0000-7000-8000-000000000000", is_completed=False)


@pytest.fixture
async def control(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeControl]:
    monkeypatch.setattr(orphaned_journals, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(orphaned_journals, "AGAIN_SECONDS", 0.05)
    made = FakeControl()
    async with made.serving():
        yield made


async def die(folder: Path, count: int = 5) -> tuple[str, set[str]]:
    """Leave what a killed gateway leaves: done rows, an open one, a lease; return whose, which."""
    journal = Journal(folder / JOURNAL)
    journal.record_lease("lease_1", "balance:org_a", 1_000)
    await journal.record_claim(CLAIM.event_id, CLAIM.organization_id)
    events = [event(charged=1) for _ in range(count)]
    lost = make_event(metered(), outcome="gateway_lost", replica_id="rep_1")
    journal.open(lost.event_id, lambda: lost)
    await asyncio.gather(*(journal.commit(one) for one in events))
    await journal.close()
    return journal.gateway_id, {lost.event_id, *(one.event_id for one in events)}


async def ship(control: FakeControl, folders: Path) -> OrphanedJournals:
    async with aiohttp.ClientSession() as session:
        clock = GatewayClock()
        api = ControlApi(session, control.url, CREDENTIAL, clock)
        known = DatabaseIdentityCheck(control.billing.lineage, lambda _: None)
        made = OrphanedJournals(folders, folders / "own", api, known, clock)
        async with asyncio.timeout(60):
            await made.run()
    return made


async def test_what_a_dead_gateway_left_is_booked_in_its_name_and_its_leases_are_closed(
    control: FakeControl, tmp_path: Path
) -> None:
    gateway_id, ids = await die(tmp_path / "dead")
    (tmp_path / "no gateway").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / JOURNAL).write_bytes(b"ours, and in use")
    shipped = (await ship(control, tmp_path)).shipped
    assert (set(control.billing.events), shipped) == (ids, 6)
    assert {batch.gateway_id for batch in control.billing.batches} == {gateway_id}
    [back] = control.billing.returns
    assert (back.lease_id, back.keep_nanos, back.closed) == ("lease_1", 5, True)
    assert control.keys.early == {CLAIM.event_id}
    left = Journal(tmp_path / "dead" / JOURNAL)
    assert (left.unacknowledged_count, left.recovered_leases, left.recovered_claims) == (0, [], [])
    await left.close()


async def test_what_a_dead_gateway_left_is_told_by_the_credential_that_it_left(
    control: FakeControl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await die(tmp_path / "dead")
    await die(tmp_path / "of before")
    save_credential(tmp_path / "dead", CREDENTIAL)
    save_credential(tmp_path / "dead", "gateway.dead.2.mac")
    assert (tmp_path / "dead" / orphaned_journals.CREDENTIAL_FILE).stat().st_mode & 0o777 == 0o600
    shown: set[tuple[str, str]] = set()
    post = ControlApi.post

    async def heard(self: ControlApi, name: str, *rest: Any) -> Any:
        shown.add((self._headers["authorization"], name))
        return await post(self, name, *rest)

    monkeypatch.setattr(ControlApi, "post", heard)
    await ship(control, tmp_path)
    said = ("usage-events", "leases", "idempotency/endings")
    assert shown == {
        (f"Bearer {one}", name) for one in ("gateway.dead.2.mac", CREDENTIAL) for name in said
    }


async def test_what_a_restored_database_lost_is_sent_again_by_the_heirs_too(
    control: FakeControl, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "dead" / JOURNAL)
    journal.record_lineage("before")
    acknowledged = [event() for _ in range(3)]
    for one in acknowledged:
        await journal.commit(one)
        await journal.archive(await journal.next_finished(10), "before")
    await journal.close()
    await ship(control, tmp_path)
    assert set(control.billing.events) == {one.event_id for one in acknowledged}


async def test_a_folder_in_use_is_left_alone(
    control: FakeControl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await die(tmp_path / "living")

    def in_use(*_: object, **__: object) -> Journal:
        raise FileLocked

    monkeypatch.setattr(orphaned_journals, "Journal", in_use)
    assert (await ship(control, tmp_path)).shipped == 0
    assert control.billing.batches == []


async def test_while_billing_is_away_its_own_gateway_may_come_back(
    control: FakeControl, tmp_path: Path
) -> None:
    _, ids = await die(tmp_path / "dead")
    control.billing.is_down = True
    shipping = asyncio.create_task(ship(control, tmp_path))
    await asyncio.sleep(0.3)
    # Within one process SQLite alone keeps two apart, and only between two tries it is free.
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(sqlite3.OperationalError):
                journal = Journal(tmp_path / "dead" / JOURNAL, busy_seconds=0.0)
                break
            await asyncio.sleep(0)
    assert journal.unacknowledged_count == 6
    await journal.close()
    control.billing.is_down = False
    await shipping
    await eventually(lambda: set(control.billing.events) == ids)


async def test_a_damaged_folder_is_rescued_and_shipped_too(
    control: FakeControl, tmp_path: Path
) -> None:
    await die(tmp_path / "dead")
    (tmp_path / "dead" / JOURNAL).write_bytes(b"no database" * 1_000)
    assert (await ship(control, tmp_path)).shipped == 0
    assert [path for path in (tmp_path / "dead").iterdir() if ".damaged-" in path.name]


def gone(control: FakeControl) -> dict[str, str]:
    """The environment of an operator's command on another host."""
    return {"PENSTOCK_INTERNAL_API_URL": control.url}


async def test_an_operator_ships_the_folder_of_a_lost_gateway_from_anywhere(
    control: FakeControl, tmp_path: Path
) -> None:
    _, ids = await die(tmp_path / "lost")
    save_credential(tmp_path / "lost", CREDENTIAL)
    shutil.copytree(tmp_path / "lost", tmp_path / "copy")
    assert unshipped(tmp_path / "copy") == Unshipped(events=6, leases=1)
    assert await ship_folder(tmp_path / "copy", gone(control)) == Unshipped(events=6, leases=1)
    assert unshipped(tmp_path / "copy") == Unshipped(events=0, leases=0)
    assert set(control.billing.events) == ids
    # The other copy is booked no second time: each event has its id.
    await ship_folder(tmp_path / "lost", gone(control))
    assert set(control.billing.events) == ids


async def test_what_keeps_a_folder_from_being_shipped_is_said(
    control: FakeControl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotShipped, match=r"holds no journal\.sqlite3"):
        await ship_folder(tmp_path, gone(control))
    await die(tmp_path / "lost")
    with pytest.raises(ConfigError, match="PENSTOCK_INTERNAL_CREDENTIAL"):
        await ship_folder(tmp_path / "lost", gone(control))
    environ = gone(control) | {"PENSTOCK_INTERNAL_CREDENTIAL": CREDENTIAL}
    control.billing.is_down = True
    with pytest.raises(NotShipped, match="try again"):
        await ship_folder(tmp_path / "lost", environ)
    assert unshipped(tmp_path / "lost").events == 6

    def in_use(*_: object, **__: object) -> Journal:
        raise FileLocked

    monkeypatch.setattr(orphaned_journals, "Journal", in_use)
    with pytest.raises(NotShipped, match="a gateway uses"):
        await ship_folder(tmp_path / "lost", environ)
