"""What comes after all is at rest: closed leases are forgotten, and the database is another one."""

from datetime import datetime, timedelta

import psycopg

from billing.credit.models import GrantKind
from billing.credit.services.leases import (
    ClockBehindError,
    answer,
    forget_leases,
    void_abandoned_leases,
)
from billing.following.cursor import ForeignLineageError
from billing.following.follow import FOLLOWERS, follow
from control.feed import database_identity
from serving.contract.budget import balance_budget_id
from serving.contract.lease import LeaseAsk, LeaseGrant, LeaseReply, LeaseRequest, LeaseReturn
from tests.simulation.cast import Cast, Wish
from tests.simulation.deeds.credit import make_grant
from tests.simulation.long_ago import check_long_ago
from tests.simulation.oracle import require
from tests.simulation.refusals import check_largest

KEPT = timedelta(days=14)
OPEN = "SELECT id, closed_at FROM credit_lease"
RESTORE = "UPDATE feed_database_identity SET seed = gen_random_uuid()"
PENDING = "SELECT sum(pending_nanos)::bigint FROM credit_budget"


def live_on(cast: Cast, monitor: psycopg.Connection) -> None:
    """See to what is from long ago, forget leases a fortnight after the last was closed, then
    restore the database."""
    _check_clocks(cast)
    check_long_ago(cast, monitor)
    check_largest(cast)
    _forget(cast, monitor)
    _restore(cast, monitor)


def _check_clocks(cast: Cast) -> None:
    """A gateway's clock may be a day behind, and no longer."""
    for late, is_refused in ((timedelta(days=1), False), (timedelta(days=1, seconds=1), True)):
        try:
            answer(LeaseRequest("gw0", cast.now - late), now=cast.now)
        except ClockBehindError:
            require(is_refused, "A gateway may be a day behind", late)
        else:
            require(not is_refused, "A gateway is refused that is over a day behind", late)


def _forget(cast: Cast, monitor: psycopg.Connection) -> None:
    """Leases are kept for a fortnight after they were closed, to the moment."""
    closed: dict[int, datetime] = dict(monitor.execute(OPEN).fetchall())
    if not closed:
        return
    last = max(closed.values())
    cast.world.clock.now = last + KEPT
    gone = [one for one, at in closed.items() if at < last]
    count = forget_leases(now=cast.now)
    left: dict[int, datetime] = dict(monitor.execute(OPEN).fetchall())
    require(count == len(gone), "Forgetting says how many", count, gone)
    require(left == {one: at for one, at in closed.items() if at == last}, "Leases are kept", left)


def _restore(cast: Cast, monitor: psycopg.Connection) -> None:
    """In a restored database no lease of the one before holds anything, and nobody follows on."""
    owner = cast.world.organization_ids[-1]
    make_grant("afterlife", Wish(owner, GrantKind.PREPAID, 1000, None), cast.now)
    first = _poll(cast, LeaseAsk("afterlife", balance_budget_id(owner), 1, 1, cast.now))
    lease = first.answers[0]
    assert isinstance(lease, LeaseGrant), lease
    monitor.execute(RESTORE)
    database_identity._known.until = 0.0
    second = _poll(cast, None, LeaseReturn(lease.lease_id, 0, True))
    require(second.lineage != first.lineage, "A restored database is another one", second)
    require(len(second.returned) == 1, "Leases of another database are given back", second)
    count = void_abandoned_leases(now=cast.now)
    require(count == 1, "Leases of another database are voided", count)
    (pending,) = monitor.execute(PENDING).fetchone() or (0,)
    require(not pending, "In the end nothing is pending", pending)
    for name in FOLLOWERS:
        try:
            follow(name, now=cast.now)
        except ForeignLineageError:
            continue
        require(False, "Nobody follows another database's events", name)


def _poll(cast: Cast, ask: LeaseAsk | None, *returns: LeaseReturn) -> LeaseReply:
    asks = () if ask is None else (ask,)
    return answer(LeaseRequest("gw0", cast.now, "", asks, returns), now=cast.now)
