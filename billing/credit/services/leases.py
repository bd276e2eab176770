"""Leases: money set aside for gateways, settled by their events, given back, or voided.

`posted + pending + n <= limit` is decided in the statement that grants (sql/authorization.sql).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from django.db import connection, transaction

from billing.arrays import array
from billing.credit.models import Lease
from billing.credit.selectors import (
    BudgetKey,
    abandoned_leases,
    budget_rows,
    held_elsewhere,
    key_at,
    lease,
    recalled_lease_ids,
)
from billing.credit.services.budgets import (
    AHEAD,
    BEAT_WAIT_MILLISECONDS,
    CLOCK_AHEAD_MAX,
    BusyError,
    lock_budgets,
    open_budgets,
    waiting_at_most,
)
from control.audit import services as audit
from control.errors import Conflict
from control.feed.database_identity import database_id
from control.permissions import Actor, Permission, require_operator
from serving.contract.budget import BudgetKind, kind_of, period_end
from serving.contract.lease import (
    Answer,
    LeaseAsk,
    LeaseDeferral,
    LeaseDenial,
    LeaseGrant,
    LeaseReply,
    LeaseRequest,
    LeaseReturn,
    Refusal,
)

FORGOTTEN_AFTER = timedelta(days=14)
"""How long a closed lease is kept. An event that names one forgotten is booked, with an alarm."""
FORGOTTEN_AT_ONCE = 10_000
LEASE_DURATION = timedelta(minutes=15)
"""How long a lease admits; gateways renew it ten minutes before."""
CLOCK_BEHIND_MAX = timedelta(hours=24)
WAIT_MILLISECONDS = 200
"""How long a budget is waited for that was busy the last time."""
DEFERRED_WAITED_FOR_MAX = 5

REFUSAL: dict[BudgetKind, Refusal] = {
    "balance": "credit_balance_exhausted",
    "organization": "organization_spend_limit_exceeded",
    "project": "project_spend_limit_exceeded",
    "key": "key_budget_exceeded",
}

GRANT = """
SELECT * FROM credit_grant_leases(%s, %s, %s, %s::text[], %s::bigint[], %s::bigint[],
    %s::bigint[], %s::timestamptz[], %s::timestamptz[])
"""
TAKE_BACK = "SELECT credit_take_back(%s, %s, %s::bigint[], %s::bigint[], %s::boolean[])"
CHARGE = """
SELECT overrun, closed FROM credit_charge(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
"""
VOID = "SELECT credit_void_lease(%s, %s)"
FORGET = "SELECT credit_forget_leases(%s, %s)"

logger = structlog.get_logger(__name__)


class ClockError(ValueError):
    """A gateway's clock is too far from billing's."""


class ClockAheadError(ClockError):
    """It is ahead: what the gateway says would land in a period to come."""


class ClockBehindError(ClockError):
    """It is a day late: leases would be over before they begin."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An ask with the budget's row and the span in which its lease would admit."""

    ask: LeaseAsk
    key: BudgetKey
    row: int
    admits_from: datetime
    admits_until: datetime


class Decided(NamedTuple):
    """What the database answered to an ask: a lease, or what is left where that is too little."""

    ask_id: str
    lease: int | None
    granted_nanos: int
    period: datetime
    admits_from: datetime
    admits_until: datetime
    available_nanos: int
    is_recalled: bool
    limit_nanos: int | None


def answer(request: LeaseRequest, *, now: datetime) -> LeaseReply:
    """Take back what a gateway returns, then grant, refuse or defer each of its asks.

    Returns and asks are transactions of their own and may be repeated after a lost answer.
    Raises ClockAheadError, ClockBehindError.
    """
    check_clock(request.sent_at, now)
    if now - request.sent_at > CLOCK_BEHIND_MAX:
        raise ClockBehindError(f"clock_behind: the gateway says {request.sent_at}, billing {now}")
    era = database_id()
    returned = take_back(
        gateway_id=request.gateway_id, returns=request.returns, lineage=era, now=now
    )
    answers = grant_leases(gateway_id=request.gateway_id, asks=request.asks, lineage=era, now=now)
    recalls = recalled_lease_ids(request.gateway_id, era)
    return LeaseReply(lineage=era, answers=answers, returned=returned, recalls=recalls)


def check_clock(sent_at: datetime | None, now: datetime) -> None:
    """Raise ClockAheadError for a gateway that lives in the future."""
    if sent_at is not None and sent_at - now > CLOCK_AHEAD_MAX:
        raise ClockAheadError(f"clock_ahead: the gateway says {sent_at}, billing {now}")


def grant_leases(
    *, gateway_id: str, asks: Sequence[LeaseAsk], lineage: str, now: datetime
) -> tuple[Answer, ...]:
    """Answer each ask; one whose budget is busy is deferred, and waited for when it comes again."""
    wanted, busy = _wanted(asks, now)
    answers: dict[str, Answer] = {}
    if wanted:
        with transaction.atomic():
            answers = _grant(gateway_id, list(wanted.values()), lineage, now)
    again = [one for one in wanted.values() if one.ask.deferred and one.ask.ask_id not in answers]
    for one in again[:DEFERRED_WAITED_FOR_MAX]:
        answers |= _grant_patiently(gateway_id, one, lineage, now)
    return tuple(
        answers.get(ask.ask_id)
        or (
            LeaseDeferral(ask.ask_id, ask.budget_id)
            if ask.ask_id in wanted or ask.ask_id in busy
            else LeaseDenial(ask.ask_id, ask.budget_id, _refusal(ask.budget_id), 0, False)
        )
        for ask in asks
    )


@transaction.atomic
def take_back(
    *, gateway_id: str, returns: Sequence[LeaseReturn], lineage: str, now: datetime
) -> tuple[str, ...]:
    """Lower what a gateway claims of its leases, and close those it is done with.

    Returns the ids that were taken, unknown ones too; those of busy budgets come again.
    """
    rows = {given.lease_id: lease_row(given.lease_id, lineage) for given in returns}
    known = [(row, given) for given in returns if (row := rows[given.lease_id]) is not None]
    taken: set[int] = set()
    if known:
        columns = (
            (row for row, _ in known),
            (given.keep_nanos for _, given in known),
            (given.closed for _, given in known),
        )
        with connection.cursor() as cursor:
            cursor.execute(TAKE_BACK, [gateway_id, now, *map(array, columns)])
            taken = {row[0] for row in cursor.fetchall()}
    return tuple(name for name, row in rows.items() if row is None or row in taken)


def charge(charges: Mapping[int, int], settles: Mapping[int, int]) -> tuple[set[int], set[int]]:
    """Add charged nanos to budgets, and settle leases, by row id.

    Returns the leases that took more than they were granted, and those that were closed already.
    It locks budgets and leases until the transaction ends, so it comes last.
    """
    columns = charges.keys(), charges.values(), settles.keys(), settles.values()
    with connection.cursor() as cursor:
        cursor.execute(CHARGE, [array(column) for column in columns])
        overrun, closed = cursor.fetchone()
    return set(overrun), set(closed)


def lease_row(lease_id: str, lineage: str) -> int | None:
    """Return the row id in a lease's wire id; None for one of another lineage, or no id at all."""
    era, _, number = lease_id.partition(".")
    if era != lineage or not (number.isascii() and number.isdecimal()) or len(number) > 18:
        return None
    return int(number)


def void_abandoned_leases(*, now: datetime) -> int:
    """Void the leases whose gateway vanished a day ago, and those of another lineage.

    Returns how many. Safe to run twice at once; a busy budget is left for the next run.
    """
    voided = 0
    for gone in abandoned_leases(database_id(), now):
        try:
            with waiting_at_most(BEAT_WAIT_MILLISECONDS):
                held = void(gone, actor=Actor.for_system("billing"), reason="abandoned", now=now)
            voided += held is not None
        except BusyError:
            logger.warning("lease_busy", lease_id=gone.wire_id)
    return voided


def forget_leases(*, now: datetime) -> int:
    """Delete leases that were closed long ago, page by page; return how many."""
    forgotten = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(FORGET, [now - FORGOTTEN_AFTER, FORGOTTEN_AT_ONCE])
            page: int = cursor.fetchone()[0]
        forgotten += page
        if page < FORGOTTEN_AT_ONCE:
            return forgotten


def void(gone: Lease, *, actor: Actor, reason: str, now: datetime) -> int | None:
    """Close a lease without its gateway, on record. Returns the nanos that it held; None where it
    is closed. The caller holds a transaction."""
    with connection.cursor() as cursor:
        cursor.execute(VOID, [gone.pk, now])
        held_nanos: int | None = cursor.fetchone()[0]
    if held_nanos is not None:
        _record(actor, "lease.void", gone, reason=reason, held_nanos=held_nanos)
    return held_nanos


@transaction.atomic
def release_lease(*, actor: Actor, lease_id: int, reason: str, now: datetime) -> None:
    """Give back at once what the lease of a gateway holds whose journal is known to be lost.

    Events that arrive all the same are booked, with an alarm. Raises Conflict when it is closed.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    if void(lease(lease_id), actor=actor, reason=reason, now=now) is None:
        raise Conflict("The lease is already closed.")


@transaction.atomic
def acknowledge_overrun(*, actor: Actor, lease_id: int, reason: str, now: datetime) -> None:
    """Note that a person looked into a lease that took more than it was granted."""
    require_operator(actor, Permission.FINANCE_WRITE)
    seen = lease(lease_id)
    if seen.settled_nanos <= seen.granted_nanos:
        raise Conflict("The lease took no more than it was granted.")
    with connection.cursor() as cursor:
        cursor.execute("SELECT credit_see_overrun(%s, %s)", [lease_id, now])
    _record(actor, "lease.acknowledge_overrun", seen, reason=reason)


def _wanted(asks: Sequence[LeaseAsk], now: datetime) -> tuple[dict[str, Wanted], set[str]]:
    """Return the asks of budgets that exist, and the ids of those whose rows others are making."""
    keys = {ask.ask_id: key_at(ask.budget_id, _begin(ask, now)) for ask in asks}
    named = {key for key in keys.values() if kind_of(key.budget_id) is not None}
    try:
        rows, busy = open_budgets(named, wait_milliseconds=WAIT_MILLISECONDS), set[BudgetKey]()
    except BusyError:
        rows = budget_rows(named)
        busy = named - rows.keys()
        logger.warning("budgets_busy", count=len(busy))
    wanted = {
        ask.ask_id: _with_span(ask, keys[ask.ask_id], rows[keys[ask.ask_id]], now)
        for ask in asks
        if keys[ask.ask_id] in rows
    }
    return wanted, {ask_id for ask_id, key in keys.items() if key in busy}


def _begin(ask: LeaseAsk, now: datetime) -> datetime:
    """The moment a lease begins to admit, by the gateway's clock; never far from now."""
    return max(min(ask.at, now + AHEAD + CLOCK_AHEAD_MAX), now - CLOCK_BEHIND_MAX)


def _with_span(ask: LeaseAsk, key: BudgetKey, row: int, now: datetime) -> Wanted:
    begin = _begin(ask, now)
    end = period_end(key.budget_id, key.starts_at)
    until = begin + LEASE_DURATION
    return Wanted(ask, key, row, begin, until if end is None else min(until, end))


def _grant(
    gateway_id: str, wanted: Sequence[Wanted], lineage: str, now: datetime
) -> dict[str, Answer]:
    by_ask = {one.ask.ask_id: one for one in wanted}
    with connection.cursor() as cursor:
        cursor.execute(
            GRANT,
            [
                *(gateway_id, lineage, now, [one.ask.ask_id for one in wanted]),
                [one.row for one in wanted],
                [one.ask.need_nanos for one in wanted],
                [one.ask.want_nanos for one in wanted],
                [one.admits_from for one in wanted],
                [one.admits_until for one in wanted],
            ],
        )
        rows = [Decided(*row) for row in cursor.fetchall()]
    refused = [by_ask[row.ask_id].row for row in rows if row.lease is None]
    held = held_elsewhere(refused, gateway_id, now) if refused else {}
    return {
        row.ask_id: _answer(one := by_ask[row.ask_id], lineage, row, held.get(one.row, 0))
        for row in rows
    }


def _grant_patiently(
    gateway_id: str, one: Wanted, lineage: str, now: datetime
) -> dict[str, Answer]:
    """Wait a moment for one busy budget, in a transaction of its own."""
    try:
        with waiting_at_most(WAIT_MILLISECONDS):
            lock_budgets([one.row])
            return _grant(gateway_id, [one], lineage, now)
    except BusyError:
        logger.warning("budget_busy", budget_id=one.key.budget_id)
        return {}


def _answer(one: Wanted, lineage: str, decided: Decided, held_nanos: int) -> Answer:
    ask = one.ask
    if decided.lease is None:
        code, left = _refusal(ask.budget_id), decided.available_nanos
        limit = None if decided.limit_nanos is None else max(decided.limit_nanos, 0)
        return LeaseDenial(
            *(ask.ask_id, ask.budget_id, code, left, decided.is_recalled, limit, held_nanos)
        )
    return LeaseGrant(
        ask_id=ask.ask_id,
        budget_id=ask.budget_id,
        lease_id=f"{lineage}.{decided.lease}",
        granted_nanos=decided.granted_nanos,
        period=decided.period,
        admits_from=decided.admits_from,
        admits_until=decided.admits_until,
        period_ends_at=period_end(ask.budget_id, decided.period),
    )


def _refusal(budget_id: str) -> Refusal:
    return REFUSAL[kind_of(budget_id) or "balance"]


def _record(actor: Actor, action: str, about: Lease, **details: object) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="lease",
        target_id=about.wire_id,
        target_name=str(about),
        organization_id=about.organization_id,
        details={"gateway_id": about.gateway_id, **details},
    )
