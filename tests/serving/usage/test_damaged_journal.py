"""A journal that is damaged: what can be read is rescued, the rest is told, and all goes on."""

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from serving.contract.codec import encode
from serving.usage import journal_store
from serving.usage.journal import Journal
from serving.usage.journal_writer import JournalUnavailable
from serving.usage.meter import make_event
from tests.fixtures.events import event, metered

PAGE = 4_096


async def write_journal(path: Path, count: int = 400) -> list[str]:
    """Leave a file with so many done events, some pages of them; return their ids in order."""
    journal = Journal(path)
    events = [event(charged=5) for _ in range(count)]
    journal.record_lease("lease_1", "org_a", 10**9)
    await asyncio.gather(*(journal.commit(one) for one in events))
    await journal.close()
    return sorted(one.event_id for one in events)


def root_of(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as file:
        find = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        [(root,)] = file.execute(find, (name,))
    return root


def leaves_under(file: bytes, number: int) -> list[int]:
    """Return the numbers of the leaf pages of a tree, in order of their keys."""
    page = file[(number - 1) * PAGE : number * PAGE]
    if page[0] not in (2, 5):
        return [number]
    cells = int.from_bytes(page[3:5], "big")
    starts = [int.from_bytes(page[12 + 2 * i : 14 + 2 * i], "big") for i in range(cells)]
    children = [int.from_bytes(page[start : start + 4], "big") for start in starts]
    children.append(int.from_bytes(page[8:12], "big"))
    return [leaf for child in children for leaf in leaves_under(file, child)]


def spoil_an_event_page(path: Path) -> None:
    leaves = leaves_under(path.read_bytes(), root_of(path, "events"))
    assert len(leaves) > 4
    spoil(path, (leaves[len(leaves) // 2] - 1) * PAGE)


def spoil(path: Path, offset: int, count: int = 64) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xa5" * count)


def damaged_files(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.glob("*.damaged-*"))


async def ids_in(journal: Journal) -> list[str]:
    return [row.event_id for row in await journal.next_finished(10_000)]


async def test_a_file_that_is_no_database_is_set_aside_and_the_gateway_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j"
    await write_journal(path)
    spoil(path, 0)
    with capture_logs() as logs:
        journal = Journal(path)
    [damage] = journal.damages
    assert damaged_files(path)[0] == damage.name
    assert re.fullmatch(r"j\.damaged-\d{8}T\d{6}\.\d{6}", damage.name)
    assert "file is not a database" in str(damage)
    assert "0 unacknowledged events were rescued, others may be lost" in str(damage)
    assert [(line["event"], line["damage"]) for line in logs] == [("journal_damaged", str(damage))]
    await journal.commit(event())
    assert journal.healthy
    await journal.close()
    again = Journal(path)
    assert (again.damages, again.unacknowledged_count) == ([], 1)
    await again.close()


async def test_of_a_file_with_a_bad_page_the_rest_is_rescued(tmp_path: Path) -> None:
    path = tmp_path / "j"
    ids = await write_journal(path)
    spoil_an_event_page(path)
    journal = Journal(path)
    rescued = await ids_in(journal)
    assert journal.damages[0].rescued_events == len(rescued) == journal.unacknowledged_count
    assert len(ids) - 100 < len(rescued) < len(ids)
    assert (rescued[0], rescued[-1]) == (ids[0], ids[-1])
    [lease] = journal.recovered_leases
    assert (lease.charged_nanos, lease.unacknowledged) == (2_000, len(rescued))
    await journal.close()


async def test_who_we_are_is_rescued_with_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "j"
    first = Journal(path)
    first.record_lineage("lineage_1")
    await first.close()
    await write_journal(path)
    spoil_an_event_page(path)
    journal = Journal(path)
    assert journal.damages
    assert (journal.gateway_id, journal.lineage) == (first.gateway_id, "lineage_1")
    await journal.close()


async def write_kept(path: Path) -> None:
    """Leave a file with a bad page that is not read at the start: of what was acknowledged."""
    journal = Journal(path)
    await journal.commit(event())
    await journal.archive(await journal.next_finished(100), "before")
    await asyncio.gather(*(journal.commit(event()) for _ in range(20)))
    await journal.close()
    spoil(path, (root_of(path, "kept_by_age") - 1) * PAGE)


async def test_a_page_that_goes_bad_while_it_runs_costs_no_request_its_answer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j"
    await write_kept(path)
    journal = Journal(path)
    acknowledged = await journal.next_finished(100)
    assert (journal.damages, len(acknowledged)) == ([], 20)
    lost = make_event(metered(), outcome="gateway_lost", replica_id="rep_1")
    journal.open(lost.event_id, lambda: lost)
    mine = {one.event_id: one for one in (event(charged=1) for _ in range(20))}
    await asyncio.gather(
        journal.archive(acknowledged, "before"), *(journal.commit(one) for one in mine.values())
    )
    assert len(journal.damages) == 1
    assert journal.healthy
    assert set(await ids_in(journal)) == set(mine)
    assert journal.unacknowledged_count == 20
    assert len((await journal.stale("restored", after=0, limit=100)).events) == 20
    await journal.close()
    again = Journal(path)
    assert again.gateway_id == journal.gateway_id
    assert set(await ids_in(again)) == set(mine) | {lost.event_id}
    await again.close()


async def test_a_page_of_what_was_acknowledged_stops_no_start(tmp_path: Path) -> None:
    path = tmp_path / "j"
    await write_kept(path)
    spoil(path, (root_of(path, "kept") - 1) * PAGE)
    journal = Journal(path)
    assert [damage.rescued_events for damage in journal.damages] == [20]
    assert journal.unacknowledged_count == 20
    await journal.close()


@pytest.mark.parametrize(
    "body", [b"\xff\xfe", b"", b"{", b'{"charges": 5}', b'{"charges": [{"lease_id": 1}]}', 7, None]
)
async def test_a_row_that_makes_no_sense_is_set_aside_alone(tmp_path: Path, body: object) -> None:
    path = tmp_path / "j"
    ids = await write_journal(path, 3)
    with closing(sqlite3.connect(path)) as file, file:
        bad = b"" if body is None else body
        file.execute("INSERT INTO events VALUES ('0', 'done', ?)", (bad,))
    journal = Journal(path)
    assert (journal.unacknowledged_count, journal.unreadable_rows, journal.damages) == (3, 1, [])
    assert await ids_in(journal) == ids
    await journal.close()
    again = Journal(path)
    assert again.unreadable_rows == 1
    await again.close()


async def test_a_row_that_goes_bad_while_it_runs_blocks_no_shipment(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    good = event()
    await journal.commit(good)
    put = "INSERT INTO events VALUES ('0', 'done', x'ff')"
    await journal._execute(lambda db: db.execute(put).rowcount)
    journal.unacknowledged_count += 1
    assert [row.event_id for row in await journal.next_finished(1)] == [good.event_id]
    assert (journal.unacknowledged_count, journal.unreadable_rows) == (1, 1)
    await journal.close()


async def test_a_kept_batch_that_makes_no_sense_blocks_no_restored_database(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await journal.commit(event())
    await journal.archive(await journal.next_finished(10), "before")
    await journal.commit(event())
    await journal.archive(await journal.next_finished(10), "before")
    spoil_first = "UPDATE kept SET body = x'00' WHERE batch_id = 1"
    await journal._execute(lambda db: db.execute(spoil_first).rowcount)
    stale = await journal.stale("restored", after=0, limit=100)
    assert (stale.batch_ids, len(stale.events)) == ([1, 2], 1)
    await journal.close()


async def test_a_full_disk_refuses_and_takes_again_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.usage.journal_writer.PROBE_SECONDS", 0.01)
    journal = Journal(tmp_path / "j")
    first = event()
    await journal.commit(first)
    await journal._execute(lambda db: db.execute("PRAGMA max_page_count = 1").fetchall())
    with pytest.raises(JournalUnavailable, match="full"):
        for _ in range(100):
            await journal.commit(event())
    assert not journal.healthy
    later = event()
    journal.commit_later(later)
    await asyncio.sleep(0.1)
    assert not journal.healthy
    journal._file.connection.execute("PRAGMA max_page_count = 100000")
    async with asyncio.timeout(60):
        while not journal.healthy:  # noqa: ASYNC110  the disk tells nobody
            await asyncio.sleep(0.01)
    assert {first.event_id, later.event_id} <= set(await ids_in(journal))
    assert journal.damages == []
    assert encode(later) in [row.body for row in await journal.next_finished(1_000)]
    await journal.close()


async def test_a_disk_that_has_no_room_for_a_new_file_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.usage.journal_writer.PROBE_SECONDS", 0.01)
    path = tmp_path / "j"
    await write_kept(path)
    journal = Journal(path)
    acknowledged = await journal.next_finished(100)
    rescue, tries = journal_store._rescue, []

    def first_full(damaged: Path, into: sqlite3.Connection) -> int:
        tries.append(damaged.name)
        if len(tries) == 1:
            into.execute("PRAGMA max_page_count = 1")
        return rescue(damaged, into)

    monkeypatch.setattr(journal_store, "_rescue", first_full)
    with pytest.raises(JournalUnavailable, match="full"):
        await journal.archive(acknowledged, "before")
    assert (journal.healthy, journal.damages) == (False, [])
    mine = event()
    journal.commit_later(mine)
    await asyncio.wait_for(journal.committed.wait(), timeout=60)
    assert journal.damages[0].name == tries[0] == tries[1]
    assert set(await ids_in(journal)) == {mine.event_id} | {row.event_id for row in acknowledged}
    await journal.close()
