"""The journal survives its process, and its thread survives whatever it is given."""

import asyncio
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from serving.contract.codec import decode, encode
from serving.contract.usage import UsageEvent
from serving.usage import journal_writer
from serving.usage.journal import Journal
from serving.usage.journal_store import FinishedEvent
from serving.usage.journal_writer import BEHIND_SECONDS, JournalUnavailable
from serving.usage.meter import make_event
from tests.fixtures.events import event, metered
from tests.fixtures.waiting import eventually


async def test_a_request_that_was_open_when_its_gateway_died_is_reported_lost(
    tmp_path: Path,
) -> None:
    first = Journal(tmp_path / "j")
    lost = make_event(metered(), outcome="gateway_lost", replica_id="rep_1")
    done = event(charged=7)
    first.record_lease("lease_1", "org_a", 100)
    first.open(lost.event_id, lambda: lost)
    first.open(done.event_id, lambda: replace_outcome(done))
    await first.commit(done)
    await first.close()
    second = Journal(tmp_path / "j")
    rows = {row.event_id: row.body for row in await second.next_finished(10)}
    assert decode(rows[lost.event_id], UsageEvent).outcome == "gateway_lost"
    assert decode(rows[done.event_id], UsageEvent) == done
    [lease] = second.recovered_leases
    assert (lease.charged_nanos, lease.unacknowledged) == (7, 1)
    assert second.gateway_id == first.gateway_id
    await second.close()


def replace_outcome(done: UsageEvent) -> UsageEvent:
    return msgspec.structs.replace(done, outcome="gateway_lost", charges=())


async def test_commits_that_come_together_are_written_together(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await asyncio.gather(*(journal.commit(event()) for _ in range(500)))
    assert journal.unacknowledged_count == 500
    assert len(await journal.next_finished(1_000)) == 500
    await journal.close()


async def test_what_many_requests_take_of_one_lease_is_added_up(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.record_lease("lease_1", "org_a", 1_000)
    await asyncio.gather(*(journal.commit(event(charged=3)) for _ in range(50)))
    await journal.close()
    second = Journal(tmp_path / "j")
    [lease] = second.recovered_leases
    assert (lease.charged_nanos, lease.unacknowledged) == (150, 50)
    await second.close()


async def test_an_open_row_is_written_though_nobody_waits_for_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    lost = make_event(metered(), outcome="gateway_lost")
    journal.open(lost.event_id, lambda: lost)

    async def states() -> list[tuple[str]]:
        return await journal._execute(lambda db: db.execute("SELECT state FROM events").fetchall())

    assert await eventually(states) == [("open {}",)]
    await journal.close()


async def test_an_open_row_is_not_even_made_for_a_request_that_ends_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, made = Journal(tmp_path / "j"), []

    def make(of: UsageEvent) -> UsageEvent:
        made.append(of.event_id)
        return of

    done, late = event(), event()
    with monkeypatch.context() as patch:
        patch.setattr(
            journal_writer, "BEHIND_SECONDS", 3_600.0
        )  # whatever this machine takes, it is soon
        for one in (done, late):
            journal.open(one.event_id, partial(make, one))
        await journal.commit(done)
    journal._writer._look_behind()
    await eventually(lambda: made)
    await journal.commit(late)
    assert made == [late.event_id]
    assert {row.event_id for row in await journal.next_finished(10)} == {
        done.event_id,
        late.event_id,
    }
    await journal.close()


async def test_no_open_row_comes_after_the_end_though_it_was_asked_for_twice(
    tmp_path: Path,
) -> None:
    journal, tried_twice = Journal(tmp_path / "j"), event()
    journal.open(tried_twice.event_id, lambda: tried_twice)
    journal._writer._look_behind()
    journal.open(tried_twice.event_id, lambda: tried_twice)
    await journal.commit(tried_twice)
    await asyncio.sleep(10 * BEHIND_SECONDS)
    rows = await journal._execute(lambda db: db.execute("SELECT state FROM events").fetchall())
    assert rows == [("done",)]
    await journal.close()


async def test_an_open_row_that_cannot_be_made_keeps_no_other_from_the_file(
    tmp_path: Path,
) -> None:
    journal, sound, later = Journal(tmp_path / "j"), event(), event()
    journal.open("broken", fail)
    journal.open(sound.event_id, lambda: sound)
    journal._writer._look_behind()
    journal.open(later.event_id, lambda: later)

    async def written() -> bool:
        rows = await journal._execute(
            lambda db: db.execute("SELECT event_id FROM events").fetchall()
        )
        return {row[0] for row in rows} == {sound.event_id, later.event_id}

    await eventually(written)
    await journal.close()


def fail() -> UsageEvent:
    raise ValueError("it cannot be made")


async def test_what_nobody_waits_for_is_tried_again_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.usage.journal_writer.PROBE_SECONDS", 0.01)
    journal = Journal(tmp_path / "j")
    await journal._execute(lambda db: db.execute("PRAGMA query_only = 1").fetchall())
    journal.commit_later(event())
    with pytest.raises(JournalUnavailable):
        await journal.commit(event())
    assert not journal.healthy
    journal._file.connection.execute("PRAGMA query_only = 0")
    await asyncio.wait_for(journal.committed.wait(), timeout=60)
    assert journal.healthy
    assert journal.unacknowledged_count == 1
    await journal.close()


async def test_only_one_gateway_uses_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    again = f"""
import asyncio, pathlib
from serving.usage.journal import Journal
async def main():
    Journal(pathlib.Path({str(tmp_path / "j")!r}), busy_seconds=0.1)
asyncio.run(main())
"""
    run = [sys.executable, "-c", again]
    second = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True)
    assert "FileLocked" in second.stderr
    await journal.close()
    third = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True)
    assert third.stderr == ""


@pytest.mark.parametrize("error", [ValueError, KeyError, MemoryError, OverflowError])
async def test_work_that_fails_fails_alone_and_the_thread_goes_on(
    tmp_path: Path, error: type[Exception]
) -> None:
    journal = Journal(tmp_path / "j")
    journal.record_lease("lease_1", "org_a", 1_000)

    def fail(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM leases")
        raise error

    outcomes = await asyncio.gather(
        journal.commit(event(charged=5)),
        journal._execute(fail),
        journal.commit(event(charged=7)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), JournalUnavailable, type(None)]
    assert journal.healthy
    assert journal.unacknowledged_count == 2
    await journal.close()
    second = Journal(tmp_path / "j")
    [lease] = second.recovered_leases
    assert (lease.charged_nanos, lease.unacknowledged) == (12, 2)
    await second.close()


async def test_work_that_nobody_waits_for_and_that_fails_is_not_tried_for_ever(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "j")
    journal.record_lease("lease_1", "org_a", 2**70)
    await journal.commit(event())
    assert journal.healthy
    assert journal._writer._waiting == []
    await journal.close()


OLD_SCHEMA = """
CREATE TABLE gateway (gateway_id TEXT PRIMARY KEY, probes INTEGER DEFAULT 0);
CREATE TABLE events (event_id TEXT PRIMARY KEY, state TEXT NOT NULL, body BLOB NOT NULL)
WITHOUT ROWID;
CREATE TABLE leases (
    lease_id TEXT PRIMARY KEY, budget_id TEXT NOT NULL,
    granted_nanos INTEGER NOT NULL, charged_nanos INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
INSERT INTO gateway VALUES ('gw_old', 0);
INSERT INTO leases VALUES ('0199aaaa-0000-7000-8000-000000000000', 'org_a', 900, 132000);
"""
OLD_EVENT = {
    "event_id": "0199aaaa-0000-7000-8000-000000000001",
    "gateway_id": "gw_old",
    **{f"{name}_id": f"{name}_a" for name in ("organization", "project", "key", "model")},
    **{"variant_id": "var_demo", "deployment_id": "dep", "price_id": "price_var_demo"},
    "endpoint": "chat.completions",
    "tier": "standard",
    "outcome": "completed",
    "received_at": "2026-11-20T12:00:00.123456Z",
    "charges": [
        {
            "budget_id": "org_a",
            "lease_id": "0199aaaa-0000-7000-8000-000000000000",
            "charged_nanos": 132_000,
        }
    ],
    "input_tokens": 1_000,
    "output_tokens": 20,
    "schema": 1,
}


def write_old_journal(path: Path) -> None:
    """Write a file as the version before left it."""
    old = sqlite3.connect(path)
    old.executescript(OLD_SCHEMA)
    body = msgspec.json.encode(OLD_EVENT)
    old.execute("INSERT INTO events VALUES (?, 'done', ?)", (OLD_EVENT["event_id"], body))
    lost = msgspec.json.encode(OLD_EVENT | {"event_id": "e2", "charges": []})
    old.execute("INSERT INTO events VALUES ('e2', 'open', ?)", (lost,))
    old.commit()
    old.close()


async def test_a_file_of_the_version_before_is_taken_over_whole(tmp_path: Path) -> None:
    write_old_journal(tmp_path / "j")
    journal = Journal(tmp_path / "j")
    assert (journal.gateway_id, journal.lineage, journal.unacknowledged_count) == ("gw_old", "", 2)
    rows = {row.event_id: row.body for row in await journal.next_finished(10)}
    old = decode(rows[OLD_EVENT["event_id"]], UsageEvent)
    assert (old.schema, old.rating, old.tier) == (1, 1, "default")
    assert rows[OLD_EVENT["event_id"]] == msgspec.json.encode(OLD_EVENT)
    [lease] = journal.recovered_leases
    assert (lease.charged_nanos, lease.unacknowledged) == (132_000, 1)
    await journal.close()


async def test_the_lineage_is_remembered(tmp_path: Path) -> None:
    for known, next_one in (("", "first"), ("first", "second"), ("second", "second")):
        journal = Journal(tmp_path / "j")
        assert journal.lineage == known
        journal.record_lineage(next_one)
        await journal.close()


async def test_what_is_kept_is_bounded_in_bytes_the_oldest_go_first(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", kept_bytes_max=3_000)
    for number in range(20):
        await journal.archive([FinishedEvent(f"e{number}", encode(event()), ())], "here")
        assert journal.kept_bytes <= 3_000
    kept = await journal.stale("elsewhere", after=0, limit=100)
    assert 3 <= len(kept.batch_ids) < 20
    assert kept.batch_ids[-1] == 20
    await journal.close()
    second = Journal(tmp_path / "j")
    assert second.kept_bytes == journal.kept_bytes
    await second.close()


async def test_what_is_kept_goes_after_a_day(tmp_path: Path) -> None:
    hours = iter(range(0, 100, 10))
    journal = Journal(tmp_path / "j", now=lambda: next(hours) * 3_600.0)
    for number in range(5):
        await journal.archive([FinishedEvent(f"e{number}", encode(event()), ())], "here")
    assert (await journal.stale("elsewhere", after=0, limit=100)).batch_ids == [3, 4, 5]
    await journal.close()


async def test_what_a_restored_database_lacks_is_not_pruned(tmp_path: Path) -> None:
    hours = iter(range(0, 100, 10))
    journal = Journal(tmp_path / "j", kept_bytes_max=700, now=lambda: next(hours) * 3_600.0)
    await journal.archive([FinishedEvent("e0", encode(event()), ())], "before")
    for number in range(1, 5):
        await journal.archive([FinishedEvent(f"e{number}", encode(event()), ())], "restored")
    assert (await journal.stale("restored", after=0, limit=100)).batch_ids == [1]
    await journal.close()


@pytest.mark.parametrize("lines_max", [1, 2, 7, 4_000])
async def test_however_many_lines_a_statement_takes_all_are_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines_max: int
) -> None:
    monkeypatch.setattr(journal_writer, "LINES_MAX", lines_max)
    journal = Journal(tmp_path / "j")
    journal.record_lease("lease_1", "org_a", 1_000)
    await asyncio.gather(*(journal.commit(event(charged=3)) for _ in range(5)))
    await asyncio.gather(*(journal.commit(event(charged=4)) for _ in range(3)))
    await journal.close()
    second = Journal(tmp_path / "j")
    [lease] = second.recovered_leases
    assert (lease.charged_nanos, lease.unacknowledged) == (27, 8)
    assert len(await second.next_finished(100)) == 8
    await second.close()


def event_of(organization_id: str, charged: int = 0) -> UsageEvent:
    return msgspec.structs.replace(event(charged), organization_id=organization_id)


async def test_a_neighbours_row_is_in_the_next_commit_whatever_others_have_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_writer, "BATCH_MAX", 20)
    journal = Journal(tmp_path / "j")
    flood = [asyncio.ensure_future(journal.commit(event_of("flood"))) for _ in range(200)]
    claims = [asyncio.ensure_future(journal.record_claim(f"c{n}", "flood")) for n in range(200)]
    for most_before in (20, 60):
        await journal.commit(event_of("neighbour"))
        assert sum(one.done() for one in flood) <= most_before
    await asyncio.gather(*flood, *claims)
    assert journal.unacknowledged_count == 202
    await journal.close()


async def test_a_lease_is_noted_before_it_is_charged_however_much_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_writer, "BATCH_MAX", 5)
    journal = Journal(tmp_path / "j")
    for number in range(60):
        journal.commit_later(event_of(f"org_{number % 7}"))
    journal.record_lease("lease_other", "org_b", 100)
    journal.record_lease("lease_1", "org_a", 100)
    await journal.commit(event_of("org_a", charged=7))
    assert journal.unacknowledged_count < 60
    await journal.close()
    second = Journal(tmp_path / "j")
    leases = {lease.lease_id: lease for lease in second.recovered_leases}
    assert leases["lease_1"].charged_nanos == 7
    assert second.unacknowledged_count == 61, "closing writes all that waits"
    await second.close()


@pytest.mark.parametrize("is_disk_at_fault", [False, True])
async def test_the_end_of_a_request_is_written_after_its_beginning_however_much_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_disk_at_fault: bool
) -> None:
    monkeypatch.setattr(journal_writer, "BATCH_MAX", 3)
    monkeypatch.setattr(journal_writer, "PROBE_SECONDS", 0.01)
    journal = Journal(tmp_path / "j")
    if is_disk_at_fault:
        await journal._execute(lambda db: db.execute("PRAGMA query_only = 1").fetchall())
    events = [event_of(f"org_{number % 3}") for number in range(40)]
    for one in events:
        journal.open(one.event_id, partial(replace_outcome, one))
    journal._writer.hand_over_opened()
    for one in events[::2]:
        journal.commit_later(one)
    await eventually(lambda: journal.healthy != is_disk_at_fault)
    for one in events[1::2]:
        journal.commit_later(one)
    journal._file.connection.execute("PRAGMA query_only = 0")
    await eventually(lambda: journal.unacknowledged_count == len(events))
    await journal.close()
    second = Journal(tmp_path / "j")
    rows = await second.next_finished(100)
    assert {decode(row.body, UsageEvent).outcome for row in rows} == {"completed"}
    assert len(rows) == len(events)
    await second.close()
