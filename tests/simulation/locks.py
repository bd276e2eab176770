"""Whoever changes money holds the locks that its books go by, from before it looks.

A lock that is missing shows in what comes of it only where another call comes between just there.
So each call is looked at before its statements: what they are about must be locked by then. And
nobody ever waits for a lease, because its budget is locked first (rule 6 of the books).
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from billing.credit.services.expiries import LOCK_ID as EXPIRIES
from billing.metering.days import LOCK_ID as DAYS
from tests.simulation.oracle import is_fine, require

ADVISORY = """
SELECT count(*) FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND mode = ANY(%s)
    AND (classid::bigint << 32) + objid::bigint = %s
"""
WAITS_FOR_LEASE = """
SELECT count(*) FROM pg_locks
WHERE pid = %s AND locktype = 'tuple' AND relation = 'credit_lease'::regclass
"""
WAITS_TOO_LATE = """
SELECT count(*) FROM pg_locks AS waits
JOIN credit_budget AS budget ON budget.ctid = format('(%%s,%%s)', waits.page, waits.tuple)::tid
JOIN credit_lease AS lease ON lease.budget_id = budget.id
JOIN pg_locks AS own ON own.pid = waits.pid AND own.transactionid = lease.xmax AND own.granted
WHERE waits.pid = %s AND waits.locktype = 'tuple' AND waits.relation = 'credit_budget'::regclass
    AND own.mode = 'ExclusiveLock'
"""
FREE_BALANCES = """
SELECT budget_id FROM credit_budget
WHERE kind = 'balance' AND organization_id = ANY(%s) FOR NO KEY UPDATE SKIP LOCKED
"""
FREE_BUDGETS = (
    "SELECT budget_id FROM credit_budget WHERE id = ANY(%s) FOR NO KEY UPDATE SKIP LOCKED"
)
FREE_CURSORS = "SELECT name FROM following_cursor WHERE name = ANY(%s) FOR UPDATE SKIP LOCKED"
SHARED, WHOLE = ["ShareLock", "ExclusiveLock"], ["ExclusiveLock"]
LEDGER_INSERT = 'INSERT INTO "ledger_transaction"'
COLUMNS = re.compile(r'"(\w+)"')

Rule = Callable[[psycopg.Connection, int, str, Sequence[Any]], bool]
"""Tells whether a session that is about to say something holds what it must."""


def check_locks(monitor: psycopg.Connection, pid: int, statement: str, params: Any) -> None:
    """Look at a statement that is about to be said. Raises BrokenError."""
    for words, rule in RULES.items():
        if words in statement:
            is_held = rule(monitor, pid, statement, params or ())
            require(is_held, "Who changes money holds its locks", " ".join(statement.split())[:120])


def check_wait(monitor: psycopg.Connection, pid: int, words: str) -> None:
    """Look at a statement that waits for a row. Raises BrokenError."""
    for sentence, query in (
        ("Nobody waits for a lease", WAITS_FOR_LEASE),
        ("Who changes a lease has locked its budget", WAITS_TOO_LATE),
    ):
        (count,) = monitor.execute(query, [pid]).fetchone() or (0,)
        require(count == 0, sentence, words)


def _advisory(lock: int, modes: list[str]) -> Rule:
    def holds(monitor: psycopg.Connection, pid: int, _: str, __: Sequence[Any]) -> bool:
        row = monitor.execute(ADVISORY, [pid, modes, lock]).fetchone()
        return row is not None and row[0] > 0

    return holds


def _none_free(query: str, of: Callable[[Sequence[Any]], list[Any]]) -> Rule:
    def holds(monitor: psycopg.Connection, _: int, __: str, params: Sequence[Any]) -> bool:
        return not monitor.execute(query, [of(params)]).fetchall()

    return holds


def funds_of(statement: str, params: Sequence[Any]) -> Counter[str]:
    """Return what ledger transactions that are about to be written add to each balance, in nanos,
    by its organization; 0 is among it."""
    columns = COLUMNS.findall(statement.partition("VALUES")[0])[1:-1]  # the last is a default
    funds: Counter[str] = Counter()
    for start in range(0, len(params), len(columns)):
        row = dict(zip(columns, params[start : start + len(columns)], strict=True))
        funds[row["organization_id"]] += row["funded_nanos"]
    return funds


def _of_ledger(monitor: psycopg.Connection, _: int, statement: str, params: Sequence[Any]) -> bool:
    owners = list(funds_of(statement, params))
    return not monitor.execute(FREE_BALANCES, [owners]).fetchall()


def _expiring(monitor: psycopg.Connection, pid: int, statement: str, params: Sequence[Any]) -> bool:
    """A grant without an end needs no lock."""
    columns = COLUMNS.findall(statement.partition("VALUES")[0])[1:]
    if params[columns.index("expires_at")] is None:
        return True
    return _advisory(EXPIRIES, SHARED)(monitor, pid, statement, params)


def _owners(params: Sequence[Any]) -> list[str]:
    """Return whose budgets by the week and the day are opened."""
    return [f"org_{name.partition('_')[2][:1]}" for name in params[0] if is_fine(name)]


RULES: dict[str, Rule] = {
    "credit_unposted_usage AS unposted USING": _none_free(FREE_BALANCES, lambda given: given[0]),
    LEDGER_INSERT: _of_ledger,
    "SELECT credit_recall(": _none_free(FREE_BUDGETS, lambda given: [given[0]]),
    "SELECT credit_open_budgets(": _none_free(FREE_BALANCES, _owners),
    "UPDATE following_cursor SET xid": _none_free(FREE_CURSORS, lambda given: [given[-1]]),
    "Add a page's charges to what is unposted": _advisory(EXPIRIES, WHOLE),
    'INSERT INTO "credit_grant"': _expiring,
    "INSERT INTO metering_usage_event": _advisory(DAYS, SHARED),
    "INSERT INTO metering_usage_correction": _advisory(DAYS, SHARED),
    "INSERT INTO metering_day (day, closed_at": _advisory(DAYS, WHOLE),
}
"""By words of a statement, what must be locked before it is said."""
