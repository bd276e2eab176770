"""The journal's file: opened, checked, and set aside where it is damaged.

A damaged file is moved away under a name that says so, what can still be read of its rows goes into
a new one, and the gateway goes on. A row that makes no sense is set aside alone. Both are told: in
the log, in a metric, and for the file in `/readyz`.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog

from serving.contract.codec import NOT_JSON
from serving.contract.usage import LeaseCharge
from serving.file_lock import FileLock
from serving.usage import kept

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
"""What goes into a new file. What billing has acknowledged does not: it is gigabytes, and wanted
only by a database that is restored within a day. The terms of leases do not either: of what was
charged to them something may be lost, so that they only go back."""
SET_ASIDE = "INSERT INTO unreadable SELECT * FROM events WHERE event_id IS ?"
DELETE = "DELETE FROM events WHERE event_id IS ?"
END_ALL_LEASES = "DELETE FROM lease_terms"
"""Nothing is adopted any more of what is in the file: what its leases were charged is in doubt."""
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
PRIMARY = 0xFF
"""Of an error code of SQLite, the part without details."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that was set aside, why, and how many events were still found in it."""

    name: str
    reason: str
    rescued_events: int

    def __str__(self) -> str:
        return (
            f"the journal was damaged ({self.reason}) and is now {self.name};"
            f" {self.rescued_events} unacknowledged events were rescued, others may be lost"
        )


class Charged(msgspec.Struct):
    """Of an event, what the leases need to know."""

    charges: tuple[LeaseCharge, ...] = ()


@dataclass(frozen=True, slots=True)
class DoneRow:
    """A finished event: its id, its bytes, and what it charges."""

    event_id: str
    body: bytes
    charges: tuple[LeaseCharge, ...]


class JournalFile:
    """One connection at a time, of one thread.

    Raises InUse, and OSError or sqlite3.Error where the disk is at fault.
    """

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self.damages: list[Damage] = []
        self._path = path
        self.trouble: sqlite3.Error | None = None
        """What is wrong with a file that was set aside and not yet replaced."""
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
        damage = Damage(self._aside.name, str(error), _rescue(self._aside, self.connection))
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


def is_damage(error: sqlite3.Error) -> bool:
    """Tell whether the file itself is at fault, and not the disk or the statement."""
    return getattr(error, "sqlite_errorcode", 0) & PRIMARY in DAMAGE


def _connect(path: Path, busy_seconds: float = 0.0) -> sqlite3.Connection:
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=busy_seconds
    )


def set_aside(path: Path) -> Path:
    """Move a damaged file away, and return under what name it is kept."""
    aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
    for part in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + part).rename(aside.with_name(aside.name + part))
    return aside


def done_rows(db: sqlite3.Connection, found: Iterable[tuple[str, bytes]]) -> list[DoneRow]:
    """Return the rows that make sense; set the others aside, and adopt no lease after that."""
    rows: list[DoneRow] = []
    for event_id, body in found:
        try:
            charges = msgspec.json.decode(body, type=Charged).charges
            rows.append(DoneRow(msgspec.convert(event_id, str), body, charges))
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
    connection.executescript(SCHEMA + kept.SCHEMA + BATCH)


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
