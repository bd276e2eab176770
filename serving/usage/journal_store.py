"""The journal's file: opened, checked, and set aside where it is damaged.

A damaged file is moved away under a name that says so, what can still be read of its rows goes into
a new one, and the gateway goes on. A row that makes no sense is set aside alone. Both are told: in
the log, in a metric, and for the file in `/readyz`.
"""

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path

import msgspec
import structlog

from serving.contract.codec import NOT_JSON
from serving.contract.idempotency import ClaimEnding
from serving.contract.ids import moment_of
from serving.contract.usage import LeaseCharge
from serving.file_lock import FileLock
from serving.sqlite_files import is_damage, set_aside
from serving.usage import journal_archive
from serving.usage.lease import JournaledLease, LeaseTerms

log = structlog.get_logger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS gateway (gateway_id TEXT PRIMARY KEY, probes INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS events (
    event_id TEXT PRIMARY KEY, state TEXT NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
    lease_id TEXT PRIMARY KEY, budget_id TEXT NOT NULL,
    granted_nanos INTEGER NOT NULL, charged_nanos INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lease_terms (
    lease_id TEXT PRIMARY KEY, lineage TEXT NOT NULL, period_at REAL NOT NULL,
    noted_at REAL NOT NULL, admits_from REAL NOT NULL, admits_until REAL NOT NULL,
    clock_offset REAL NOT NULL, lost_nanos INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lineage (lineage TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS claims (
    event_id TEXT PRIMARY KEY, organization_id TEXT NOT NULL, is_completed INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unreadable (event_id TEXT, state TEXT, body BLOB);
"""
TERMS_HAVE_LINEAGE = "SELECT count(*) FROM pragma_table_info('lease_terms') WHERE name = 'lineage'"
DROP_OLD_TERMS = "DROP TABLE IF EXISTS lease_terms"
"""The terms that an older version wrote do not say which database granted a lease."""
BATCH = """
CREATE TEMP VIEW batch AS
    SELECT '' AS event_id, '' AS state, x'' AS body, '' AS lease_id, 0 AS nanos;
CREATE TEMP TRIGGER put_event INSTEAD OF INSERT ON batch WHEN NEW.event_id IS NOT NULL BEGIN
    INSERT OR REPLACE INTO events VALUES (NEW.event_id, NEW.state, NEW.body);
END;
CREATE TEMP TRIGGER charge_lease INSTEAD OF INSERT ON batch WHEN NEW.lease_id IS NOT NULL BEGIN
    UPDATE leases SET charged_nanos = charged_nanos + NEW.nanos WHERE lease_id = NEW.lease_id;
END;
"""
"""Lines of events and of what leases are charged, so that one statement puts both, and is by itself
a whole transaction."""
CHECKS = tuple(
    f"PRAGMA quick_check({table})"
    for table in ("gateway", "leases", "lease_terms", "claims", "events", "lineage")
)
RESCUES = (
    (
        "INSERT OR IGNORE INTO gateway VALUES (?, ?)",
        "SELECT * FROM gateway ORDER BY gateway_id",
        "SELECT * FROM gateway ORDER BY gateway_id DESC",
    ),
    (
        "INSERT OR IGNORE INTO lineage VALUES (?)",
        "SELECT * FROM lineage ORDER BY rowid",
        "SELECT * FROM lineage ORDER BY rowid DESC",
    ),
    (
        "INSERT OR IGNORE INTO leases VALUES (?, ?, ?, ?)",
        "SELECT * FROM leases ORDER BY lease_id",
        "SELECT * FROM leases ORDER BY lease_id DESC",
    ),
    (
        "INSERT OR IGNORE INTO claims VALUES (?, ?, ?)",
        "SELECT * FROM claims ORDER BY event_id",
        "SELECT * FROM claims ORDER BY event_id DESC",
    ),
    (
        "INSERT OR IGNORE INTO events VALUES (?, ?, ?)",
        "SELECT * FROM events ORDER BY event_id",
        "SELECT * FROM events ORDER BY event_id DESC",
    ),
)
"""The tables that go into a new file. Acknowledged events do not: they are gigabytes, and wanted
only by a database that is restored within a day. The terms of leases do not either: of what was
charged to them something may be lost, so that they only go back."""
SET_ASIDE = "INSERT INTO unreadable SELECT * FROM events WHERE event_id IS ?"
DELETE = "DELETE FROM events WHERE event_id IS ?"
END_ALL_LEASES = "DELETE FROM lease_terms"
"""Nothing is adopted any more of what is in the file: what its leases were charged is in doubt."""


@dataclass(frozen=True, slots=True)
class JournalDamage:
    """A file that was set aside, why, and how many events were still found in it."""

    name: str
    reason: str
    rescued_events: int

    def __str__(self) -> str:
        return (
            f"the journal was damaged ({self.reason}) and is now {self.name};"
            f" {self.rescued_events} unacknowledged events were rescued, others may be lost"
        )


class EventCharges(msgspec.Struct):
    """The part of an event that leases need."""

    charges: tuple[LeaseCharge, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """A finished event: its id, its bytes, and what it charges."""

    event_id: str
    body: bytes
    charges: tuple[LeaseCharge, ...]


class JournalStore:
    """One connection at a time, of one thread.

    Raises FileLocked, and OSError or sqlite3.Error where the disk is at fault.
    """

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self.damages: list[JournalDamage] = []
        self._path = path
        self.trouble: sqlite3.Error | None = None
        """The error of a file that was set aside and not yet replaced."""
        self._aside = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(path.with_name(f"{path.name}.lock"), busy_seconds)
        self.connection = _connect(path, busy_seconds)
        try:
            _set_up(self.connection)
            _check(self.connection)
        except sqlite3.Error as error:
            if not is_damage(error):
                self.close()
                raise
            self.replace(error)

    def replace(self, error: sqlite3.Error) -> None:
        """Go on with a new file. To be repeated where the disk would not take all of it."""
        self._close()
        if self.trouble is None:
            self._aside, self.trouble = set_aside(self._path), error
        self.connection = _connect(self._path)
        _set_up(self.connection)
        damage = JournalDamage(self._aside.name, str(error), _rescue(self._aside, self.connection))
        self.trouble = None
        self.damages.append(damage)
        log.error("journal_damaged", damage=str(damage))

    def is_locked(self) -> bool:
        """Whether no other process can use the folder."""
        return self._lock.is_held()

    def close(self) -> None:
        """Let others use the file."""
        self._close()
        self._lock.close()

    def _close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()


def _connect(path: Path, busy_seconds: float = 0.0) -> sqlite3.Connection:
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=busy_seconds
    )


def finished_events(
    db: sqlite3.Connection, found: Iterable[tuple[str, bytes]]
) -> list[FinishedEvent]:
    """Return the rows that make sense; set the others aside, and adopt no lease after that."""
    rows: list[FinishedEvent] = []
    for event_id, body in found:
        try:
            charges = msgspec.json.decode(body, type=EventCharges).charges
            rows.append(FinishedEvent(msgspec.convert(event_id, str), body, charges))
        except (*NOT_JSON, TypeError) as error:
            log.error("journal_row_unreadable", event_id=repr(event_id), error=str(error))
            db.execute(SET_ASIDE, (event_id,))
            db.execute(DELETE, (event_id,))
            db.execute(END_ALL_LEASES)
    return rows


def unreadable_count(db: sqlite3.Connection) -> int:
    """Return how many rows were set aside."""
    count: int = db.execute("SELECT count(*) FROM unreadable").fetchone()[0]
    return count


def _set_up(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    if not connection.execute(TERMS_HAVE_LINEAGE).fetchone()[0]:
        connection.execute(DROP_OLD_TERMS)
    connection.executescript(SCHEMA + journal_archive.SCHEMA + BATCH)


def _check(connection: sqlite3.Connection) -> None:
    """Read every page of what is not acknowledged. Raises DatabaseError for a damaged one."""
    for check in CHECKS:
        found = connection.execute(check).fetchone()[0]
        if found != "ok":
            error = sqlite3.DatabaseError(found.splitlines()[-1])
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error


def _rescue(damaged: Path, into: sqlite3.Connection) -> int:
    """Copy every row that can still be read, and return how many are events."""
    with contextlib.closing(_connect(damaged)) as db:
        into.execute("BEGIN")
        for put, forward, backward in RESCUES:
            into.executemany(put, _legible(db, forward, backward))
        into.execute("COMMIT")
    count: int = into.execute("SELECT count(*) FROM events").fetchone()[0]
    return count


def _legible(db: sqlite3.Connection, forward: str, backward: str) -> Iterator[tuple[object, ...]]:
    """Return rows from the first to one that cannot be read, then from the last to such a one."""
    for query in (forward, backward):
        try:
            yield from db.execute(query)
            return
        except sqlite3.DatabaseError:
            continue


UNDER_WAY = "SELECT state FROM events WHERE state <> 'done'"


FINISH_LOST = "UPDATE events SET state = 'done' WHERE state <> 'done'"


TERMS = tuple(field.name for field in fields(LeaseTerms))


LEASES = "SELECT * FROM leases LEFT JOIN lease_terms USING (lease_id)"


LATEST_EVENT = "SELECT max(event_id) FROM events"


LOSE = "UPDATE lease_terms SET lost_nanos = lost_nanos + ? WHERE lease_id = ?"


def finish_lost(db: sqlite3.Connection) -> int:
    """Make done rows of those that a dead life left open, and take off its leases what was held for
    them. Return how many there were."""
    held = Counter[str]()
    is_known = True
    for (state,) in db.execute(UNDER_WAY):
        try:
            parts = msgspec.json.decode(str(state).removeprefix("open "), type=dict[str, int])
        except msgspec.DecodeError:
            is_known = False  # By an older version, which did not say.
        else:
            held.update(parts)
    if is_known:
        db.executemany(LOSE, [(nanos, lease_id) for lease_id, nanos in held.items()])
    else:
        db.execute(END_ALL_LEASES)
    return db.execute(FINISH_LOST).rowcount


def recovered_leases(
    db: sqlite3.Connection, rows: list[FinishedEvent], *, is_locked: bool
) -> list[JournaledLease]:
    """Return the leases of a life before. If the folder is not ours alone, or the records of
    leases make no sense or contradict the events, none is in force any more, on the disk neither.
    """
    waiting, charged, budget_ids = Counter[str](), Counter[str](), dict[str, str]()
    for charge in chain.from_iterable(row.charges for row in rows):
        budget_ids[charge.lease_id] = charge.budget_id
        waiting[charge.lease_id] += 1
        charged[charge.lease_id] += charge.charged_nanos
    doubt = "" if is_locked else "the folder is not locked"
    leases: list[JournaledLease] = []
    for row in db.execute(LEASES):
        try:
            lease = _read_lease(row, waiting)
        except msgspec.ValidationError as error:
            doubt = str(error)
            log.error("journal_lease_unreadable", lease_id=repr(row[0]), error=doubt)
            with contextlib.suppress(msgspec.ValidationError):
                leases.append(_read_lease((*row[:4], None), waiting))
            continue
        if lease.charged_nanos < charged[lease.lease_id]:
            doubt = f"more is charged to {lease.lease_id} than its record says"
        leases.append(lease)
    if doubt and any(lease.terms for lease in leases):
        log.error("leases_not_adopted", reason=doubt)
        leases = [replace(lease, terms=None) for lease in leases]
    if doubt:
        db.execute(END_ALL_LEASES)
    known = {lease.lease_id for lease in leases}
    leases += [
        JournaledLease(lease_id, budget_id, 0, 0, waiting[lease_id])
        for lease_id, budget_id in budget_ids.items()
        if lease_id not in known
    ]
    return leases


def _read_lease(row: tuple[object, ...], waiting: Mapping[str, int]) -> JournaledLease:
    """Return a lease as `LEASES` finds it. Raises msgspec.ValidationError."""
    lease_id, budget_id, granted_nanos, charged_nanos, *terms = row
    known = {
        "lease_id": lease_id,
        "budget_id": budget_id,
        "granted_nanos": granted_nanos,
        "charged_nanos": charged_nanos,
        "unacknowledged": waiting.get(str(lease_id), 0),
        "terms": None if terms[0] is None else dict(zip(TERMS, terms, strict=True)),
    }
    return msgspec.convert(known, JournaledLease)


def latest_event_at(db: sqlite3.Connection) -> float:
    """Return the time in the last id of an event, in seconds since 1970; 0 where there is none."""
    (event_id,) = db.execute(LATEST_EVENT).fetchone()
    try:
        return moment_of(event_id or "").timestamp()
    except (ValueError, OverflowError):
        return 0.0


def known_lineage(db: sqlite3.Connection) -> str:
    row = db.execute("SELECT lineage FROM lineage").fetchone()
    return "" if row is None else row[0]


def recovered_claims(db: sqlite3.Connection) -> Iterator[ClaimEnding]:
    for event_id, organization_id, is_completed in db.execute("SELECT * FROM claims"):
        known = {"event_id": event_id, "organization_id": organization_id}
        try:
            yield msgspec.convert(known | {"is_completed": bool(is_completed)}, ClaimEnding)
        except msgspec.ValidationError as error:
            log.error("journal_claim_unreadable", event_id=repr(event_id), error=str(error))
