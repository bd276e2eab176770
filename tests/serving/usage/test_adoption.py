"""A gateway that starts again adopts the leases that its disk says are in force, and no other."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from serving.contract.budget import limit_budget_id
from serving.file_lock import FileLock, FileLocked
from serving.usage import journal_store
from serving.usage.journal import Journal, JournalUnavailable
from tests.fixtures.balances import Clocks
from tests.fixtures.restarts import WORST, RestartingGateway

BY_DAY = limit_budget_id("org_a", "day")
MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC)


def gateway_in(folder: Path, **settings: object) -> RestartingGateway:
    return RestartingGateway(folder, limit_nanos=100_000 * WORST, **settings)


@pytest.fixture
async def gateway(tmp_path: Path) -> RestartingGateway:
    """A gateway that has served one request, so that it has a lease."""
    made = gateway_in(tmp_path)
    await made.start()
    await made.spend()
    assert made.active()
    return made


async def test_a_gateway_serves_from_what_is_left_of_its_leases(gateway: RestartingGateway) -> None:
    left, leases = gateway.spendable(), gateway.active()
    await gateway.restart()
    gateway.money.is_down = True
    assert gateway.active() == leases
    assert gateway.spendable() == left > 0
    await gateway.poll()
    assert not gateway.money.poll.has_never_been_answered
    await gateway.spend()
    assert gateway.spendable() == left - WORST
    gateway.clocks.pass_(901.0)
    assert gateway.spendable() == 0


async def test_the_worst_case_of_what_was_under_way_is_left_out_in_every_later_process(
    gateway: RestartingGateway,
) -> None:
    await gateway.begin(is_written=True)
    left = gateway.spendable()
    for _ in range(2):
        await gateway.restart()
        assert gateway.spendable() == left > 0


async def test_a_gateway_that_ends_while_billing_is_away_keeps_its_leases(
    gateway: RestartingGateway,
) -> None:
    gateway.money.is_down = True
    await gateway.stop()
    assert gateway.spendable() > 0


async def test_a_request_on_an_adopted_lease_costs_one_commit(gateway: RestartingGateway) -> None:
    await gateway.restart()
    before = gateway.commits
    await gateway.spend()
    assert gateway.commits - before == 1


# When the clocks have moved.


def pass_both(gateway: RestartingGateway, seconds: float) -> None:
    gateway.clocks.pass_(seconds)


def move(gateway: RestartingGateway, *, monotonic: float, wall: float) -> None:
    gateway.clocks.seconds += monotonic
    gateway.clocks.wall += timedelta(seconds=wall)


def reboot(gateway: RestartingGateway, wall: float) -> None:
    gateway.clocks.seconds = 50.0
    gateway.clocks.wall += timedelta(seconds=wall)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (partial(pass_both, seconds=899.0), None),
        (partial(pass_both, seconds=901.0), "expired"),
        (partial(move, monotonic=0.0, wall=901.0), "expired"),
        (partial(move, monotonic=900.3, wall=899.5), "expired"),
        (partial(move, monotonic=60.0, wall=59.5), None),
        (partial(move, monotonic=60.0, wall=58.0), "clock_set_back"),
        (partial(move, monotonic=0.0, wall=-5.0), "clock_set_back"),
        (partial(reboot, wall=60.0), None),
        (partial(reboot, wall=901.0), "expired"),
        (partial(reboot, wall=-5.0), "clock_set_back"),
    ],
)
async def test_the_earlier_of_two_expiries_counts_and_nothing_after_a_step_back(
    gateway: RestartingGateway, change: Callable[[RestartingGateway], None], reason: str | None
) -> None:
    change(gateway)
    with capture_logs() as logs:
        await gateway.restart()
    assert bool(gateway.active()) == (reason is None)
    [line] = [line for line in logs if line["event"] == "leases_recovered"]
    assert line["returned"] == ({} if reason is None else {reason: 1})


async def test_a_lease_goes_on_for_the_rest_of_its_time_after_the_host_restarted(
    gateway: RestartingGateway,
) -> None:
    reboot(gateway, wall=60.0)
    await gateway.restart()
    assert gateway.spendable() > 0
    gateway.clocks.pass_(838.0)
    assert gateway.spendable() > 0
    gateway.clocks.pass_(3.0)
    assert gateway.spendable() == 0


async def test_a_step_of_the_clock_between_two_restarts_is_remembered(
    gateway: RestartingGateway,
) -> None:
    move(gateway, monotonic=0.0, wall=120.0)
    await gateway.restart()
    assert gateway.active()
    await gateway.flush()
    move(gateway, monotonic=0.0, wall=-60.0)
    await gateway.restart()
    assert not gateway.active()


@pytest.mark.parametrize("is_shipped", [False, True])
async def test_a_clock_before_the_latest_event_was_set_back(
    gateway: RestartingGateway, is_shipped: bool
) -> None:
    gateway.clocks.pass_(60.0)
    await gateway.spend()
    if is_shipped:
        await gateway.ship()
    reboot(gateway, wall=-30.0)
    await gateway.restart()
    assert not gateway.active()


async def test_a_lease_of_a_period_that_is_over_is_not_adopted(tmp_path: Path) -> None:
    clocks = Clocks(MIDNIGHT - timedelta(seconds=10))
    gateway = gateway_in(tmp_path, budget_id=BY_DAY, clocks=clocks)
    await gateway.start()
    await gateway.spend()
    gateway.clocks.pass_(5.0)
    await gateway.restart()
    assert gateway.active()
    gateway.clocks.pass_(10.0)
    assert clocks.wall > MIDNIGHT
    await gateway.restart()
    assert not gateway.active()


async def test_a_lease_of_the_next_period_is_adopted_for_it(tmp_path: Path) -> None:
    clocks = Clocks(MIDNIGHT - timedelta(seconds=60))
    gateway = gateway_in(tmp_path, budget_id=BY_DAY, clocks=clocks)
    await gateway.start()
    for _ in range(4):
        await gateway.spend()
        await gateway.poll()
    periods = {lease.granted.period for lease in gateway.billing.books.leases.values()}
    assert MIDNIGHT in periods
    await gateway.restart()
    gateway.money.is_down = True
    gateway.clocks.pass_(70.0)
    assert gateway.spendable() > 0


# When the lease was returned.


async def test_a_lease_that_billing_has_back_is_not_adopted(gateway: RestartingGateway) -> None:
    [lease] = gateway.billing.books.leases.values()
    gateway.recall()
    pass_both(gateway, 0.6)
    await gateway.poll()
    gateway.money.loses_replies = True
    pass_both(gateway, 0.6)
    await gateway.poll()
    assert lease.stopped
    await gateway.restart()
    assert lease.granted.lease_id not in gateway.active()


@pytest.mark.parametrize(("steps", "is_received"), [(0, False), (1, False), (2, True)])
async def test_a_lease_whose_return_is_on_the_disk_is_not_adopted(
    gateway: RestartingGateway, steps: int, is_received: bool
) -> None:
    [lease] = gateway.billing.books.leases.values()
    gateway.recall()
    pass_both(gateway, 0.6)
    await gateway.poll()
    gateway.crash_after(steps)  # the return on the disk, before billing hears of it, after that
    pass_both(gateway, 0.6)
    await gateway.poll()
    assert (gateway.is_crashed, lease.stopped) == (True, is_received)
    await gateway.restart()
    assert lease.granted.lease_id not in gateway.active()
    pass_both(gateway, 0.6)
    await gateway.poll()
    assert lease.stopped
    await gateway.check()


async def test_nothing_is_told_to_billing_that_the_disk_would_not_take(
    gateway: RestartingGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    [lease] = gateway.billing.books.leases.values()
    gateway.recall()
    pass_both(gateway, 0.6)
    await gateway.poll()

    async def unavailable(lease_ids: list[str]) -> None:
        raise JournalUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(gateway.money.journal, "end_leases", unavailable)
        await gateway.poll()
        assert not lease.stopped
    await gateway.poll()
    assert lease.stopped


# When the file says something else.


def run(sql: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(sql)


def damage(path: Path) -> None:
    run("PRAGMA wal_checkpoint(TRUNCATE)", path)
    with closing(sqlite3.connect(path)) as db:
        [(root,)] = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'claims'")
    with path.open("r+b") as file:
        file.seek((root - 1) * 4_096)
        file.write(b"\xa5" * 64)


OLD_TERMS = """
DROP TABLE lease_terms;
CREATE TABLE lease_terms (
    lease_id TEXT PRIMARY KEY, period_at REAL NOT NULL, noted_at REAL NOT NULL,
    admits_from REAL NOT NULL, admits_until REAL NOT NULL, lost_nanos INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
INSERT INTO lease_terms SELECT lease_id, 0.0, 0.0, 0.0, 1e10, 0 FROM leases;
"""


@dataclass
class Case:
    name: str
    edit: Callable[[Path], None]


CASES = [
    Case("another lineage", partial(run, "UPDATE lineage SET lineage = 'lineage_9'")),
    Case("no lineage", partial(run, "DELETE FROM lineage")),
    Case("a lease of another lineage", partial(run, "UPDATE lease_terms SET lineage = ''")),
    Case("another period", partial(run, "UPDATE lease_terms SET period_at = 86400")),
    Case("terms of an older version", partial(run, OLD_TERMS)),
    Case("terms that make no sense", partial(run, "UPDATE lease_terms SET admits_until = 'soon'")),
    Case("a lease that makes no sense", partial(run, "UPDATE leases SET charged_nanos = 'much'")),
    Case("more events than charges", partial(run, "UPDATE leases SET charged_nanos = 1")),
    Case("an unreadable event", partial(run, "INSERT INTO events VALUES ('0', 'done', x'ff')")),
    Case("an open row without holds", partial(run, "UPDATE events SET state = 'open'")),
    Case("a damaged file", damage),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_nothing_is_adopted_that_the_file_leaves_in_doubt(
    gateway: RestartingGateway, case: Case
) -> None:
    await gateway.restart()
    assert gateway.active()
    await gateway.restart(case.edit)
    assert not gateway.active()
    assert gateway.spendable() == 0
    if case.name not in {"another lineage", "no lineage"}:
        await gateway.restart()
        assert not gateway.active()


async def test_nothing_is_adopted_of_the_rows_around_one_that_is_found_unreadable_later(
    gateway: RestartingGateway,
) -> None:
    journal = gateway.money.journal
    put = "INSERT INTO events VALUES ('0', 'done', x'ff')"
    await journal._execute(lambda db: db.execute(put).rowcount)
    await journal.next_finished(10)
    await gateway.restart()
    assert not gateway.active()


async def test_leases_granted_after_a_rescue_are_adopted(gateway: RestartingGateway) -> None:
    old = gateway.active()
    await gateway.restart(damage)
    await gateway.spend()
    new = gateway.active()
    assert new
    await gateway.restart()
    assert gateway.active() == new
    assert not new & old


async def test_a_lease_of_which_only_events_are_left_is_closed_after_them(
    gateway: RestartingGateway,
) -> None:
    [lease] = gateway.billing.books.leases.values()
    await gateway.restart(partial(run, "DELETE FROM leases"))
    gateway.recall()
    for _ in range(3):
        pass_both(gateway, 0.6)
        await gateway.poll()
        await gateway.check()
        assert not lease.stopped
    await gateway.ship()
    pass_both(gateway, 0.6)
    await gateway.poll()
    await gateway.check()
    assert lease.closed


# When the folder is another's.


async def test_without_the_lock_of_the_folder_nothing_is_read(gateway: RestartingGateway) -> None:
    path = gateway.path.with_name("other.sqlite3")
    with pytest.raises(FileLocked), pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileLock, "_is_taken", lambda lock: False)
        Journal(path, busy_seconds=0.0)
    assert not path.exists()


async def test_nothing_is_adopted_where_another_lock_was_put_in_place(
    gateway: RestartingGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = journal_store._connect

    def put_another(path: Path, busy_seconds: float = 0.0) -> sqlite3.Connection:
        lock = path.with_name(f"{path.name}.lock")
        lock.unlink()
        lock.touch()
        return connect(path, busy_seconds)

    with monkeypatch.context() as patch:
        patch.setattr(journal_store, "_connect", put_another)
        await gateway.restart()
    assert not gateway.active()
    await gateway.restart()
    assert not gateway.active()
