"""Budgets: opening a period's row, locking rows, moving a limit."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import OperationalError, connection, transaction

from billing.credit.selectors import BudgetKey, budget_rows, key_at, organizations_limited
from control.feed.database_identity import on_change
from control.organizations.signals import limits_changed
from serving.contract.budget import (
    balance_budget_id,
    is_fine,
    kind_of,
    limited_id,
    period_end,
    period_of,
)

AHEAD = timedelta(minutes=15)
"""How long before a period begins its leases may be asked for."""
CLOCK_AHEAD_MAX = timedelta(minutes=5)
COMMITTED_WITHIN = timedelta(minutes=1)
"""How long a transaction of ours may last (its time-out)."""
LOCK_NOT_AVAILABLE = "55P03"
BEAT_WAIT_MILLISECONDS = 1_000
"""How long recurring work waits for one balance before it goes on to the next."""
KNOWN_MAX = 500_000

OPEN = """
SELECT credit_open_budgets(%s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[],
    %s::timestamptz[], %s::bigint[])
"""
LOCK = "SELECT credit_lock(%s::bigint[])"
RECALL = "SELECT credit_recall(%s, %s)"
SUSPEND_CREDIT_LIMIT = "SELECT credit_suspend_credit_limit(%s, %s, %s)"
SET_LIMITS = "SELECT credit_set_limits(%s::bigint[], %s::bigint[], %s)"

logger = structlog.get_logger(__name__)

_known: dict[BudgetKey, int] = {}
"""Rows that were committed when they were seen; a row never goes and never changes its id."""

Spent = Callable[[Collection[BudgetKey], list[str]], Mapping[BudgetKey, int]]
"""Tells what was charged in the periods of budgets of some organizations; asked while the balances
of these are locked."""

_spent: list[Spent] = []


class BusyError(Exception):
    """A lock was waited for as long as allowed, and not had."""


@contextmanager
def waiting_at_most(milliseconds: int) -> Iterator[None]:
    """Run a transaction that waits no longer than this for any lock. Raises BusyError."""
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = {int(milliseconds)}")
            yield
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
            raise
        raise BusyError from error


def open_budgets(
    keys: Iterable[BudgetKey], *, wait_milliseconds: int | None = None
) -> dict[BudgetKey, int]:
    """Return the row ids of budgets in periods, making those that are missing.

    What control does not know has no row and is left out. Raises BusyError where somebody else is
    making one of the rows and does not commit in time.
    """
    wanted = set(keys)
    found = {key: row for key in wanted if (row := _known.get(key)) is not None}
    missing = wanted - found.keys()
    if missing:
        rows = budget_rows(missing)
        if absent := missing - rows.keys():
            with waiting_at_most(wait_milliseconds) if wait_milliseconds else nullcontext():
                _make(sorted(absent))
            rows = budget_rows(missing)
        _remember(rows)
        found |= rows
    return found


def open_balance(organization_id: str) -> int | None:
    """Return the row id of an organization's balance, None for an unknown organization."""
    key = key_at(balance_budget_id(organization_id), datetime.max)
    return open_budgets([key]).get(key)


def forget_known() -> None:
    """Forget which rows there are: the database is another one."""
    _known.clear()


def lock_budgets(rows: Collection[int]) -> None:
    """Lock budgets until the transaction ends, in the one order."""
    with connection.cursor() as cursor:
        cursor.execute(LOCK, [list(rows)])


def know_spent(spent: Spent) -> None:
    """Ask `spent` from now on what was charged before a row by the week or the day was there."""
    _spent[:] = [spent]


def recall(row: int, *, now: datetime) -> None:
    """Ask gateways for all of a budget that lies idle with them. The budget is locked."""
    with connection.cursor() as cursor:
        cursor.execute(RECALL, [row, now])


def listen() -> None:
    """Follow control's limits from now on, and which database this is."""
    limits_changed.connect(_on_limits_changed, dispatch_uid="billing.credit.budgets")
    on_change(forget_known)


@transaction.atomic
def set_limits(limits: Mapping[str, int | None], *, now: datetime) -> None:
    """Put new limits on budgets (on a balance its credit limit) from this period on.

    Money leased beyond a lowered limit is recalled at once. Rows of the next period that a gateway
    may have opened by now, or opens with the old limit before this commits, have it corrected too.
    """
    moments = (now, now + AHEAD + CLOCK_AHEAD_MAX + COMMITTED_WITHIN)
    rows = open_budgets({key_at(name, at) for name in limits for at in moments})
    with connection.cursor() as cursor:
        new = [limits[key.budget_id] for key in rows]
        cursor.execute(SET_LIMITS, [list(rows.values()), new, now])
        recalled = cursor.fetchone()[0]
    logger.info("limits_set", limits=dict(limits), recalled_count=recalled)


@transaction.atomic
def suspend_credit_limit(organization_id: str, *, now: datetime) -> None:
    """Serve only what funds an organization's balance; leases beyond that are recalled."""
    _suspend(organization_id, True, now)


@transaction.atomic
def restore_credit_limit(organization_id: str, *, now: datetime) -> None:
    """Serve an organization up to its credit limit again."""
    _suspend(organization_id, False, now)


def _suspend(organization_id: str, is_suspended: bool, now: datetime) -> None:
    row = open_balance(organization_id)
    with connection.cursor() as cursor:
        cursor.execute(SUSPEND_CREDIT_LIMIT, [row, is_suspended, now])


def _on_limits_changed(
    sender: object, limits: Mapping[str, int | None], now: datetime, **_: Any
) -> None:
    set_limits(limits, now=now)


def _make(keys: list[BudgetKey]) -> None:
    named = [key for key in keys if kind_of(key.budget_id) is not None]
    fine = [key for key in named if is_fine(key.budget_id)]
    _insert([key for key in named if key not in fine], {})
    if fine:
        with transaction.atomic():
            owners = organizations_limited({limited_id(key.budget_id) for key in fine})
            _lock_balances(owners)
            _insert(fine, _spent[0](fine, owners))


def _insert(keys: list[BudgetKey], posted: Mapping[BudgetKey, int]) -> None:
    if not keys:
        return
    columns: list[Any] = [
        [key.budget_id for key in keys],
        [kind_of(key.budget_id) for key in keys],
        [period_of(key.budget_id) for key in keys],
        [limited_id(key.budget_id) for key in keys],
        [key.starts_at for key in keys],
        [period_end(key.budget_id, key.starts_at) for key in keys],
        [posted.get(key, 0) for key in keys],
    ]
    with connection.cursor() as cursor:
        cursor.execute(OPEN, columns)


def _lock_balances(organizations: Iterable[str]) -> None:
    """Let no usage be booked that budgets about to be opened would not know: it locks balances."""
    balances = (key_at(balance_budget_id(one), datetime.max) for one in organizations)
    lock_budgets(list(open_budgets(balances).values()))


def _remember(rows: Mapping[BudgetKey, int]) -> None:
    if connection.in_atomic_block:
        return
    if len(_known) > KNOWN_MAX:
        _known.clear()
    _known.update(rows)
