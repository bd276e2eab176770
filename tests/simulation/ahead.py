"""What is asked for ahead of its time, to the moment, with nobody beside it."""

from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from typing import Any

import psycopg

from billing.credit.services.leases import ClockAheadError, answer
from billing.metering.ingest import ingest
from control.errors import ObjectNotFound
from control.limits.spending import add_limit, change_limit, remove_limit
from control.organizations.models import Organization
from serving.contract.budget import limit_budget_id
from serving.contract.lease import LeaseAsk, LeaseGrant, LeaseRequest, LeaseReturn
from serving.contract.usage import UsageBatch
from tests.simulation.cast import OPERATOR, Cast
from tests.simulation.oracle import CLOCKS_APART, require

PERIOD = "SELECT limit_nanos FROM credit_budget WHERE budget_id = %s AND starts_at = %s"
MICROSECOND, MINUTE = timedelta(microseconds=1), timedelta(minutes=1)


def check_ahead(cast: Cast, monitor: psycopg.Connection) -> None:
    """Raises BrokenError."""
    _check_clocks(cast)
    _check_limits(cast, monitor)


def _check_clocks(cast: Cast) -> None:
    """A gateway's clock may be five minutes ahead, to the moment."""
    for ahead in (CLOCKS_APART, CLOCKS_APART + MICROSECOND):
        at = cast.now + ahead
        for words, say in (
            ("polls", lambda at=at: answer(LeaseRequest("edge_a", at), now=cast.now)),
            ("ships", lambda at=at: ingest(UsageBatch("edge_a", (), sent_at=at), now=cast.now)),
        ):
            try:
                say()
            except ClockAheadError:
                require(ahead > CLOCKS_APART, "A clock may be five minutes ahead", words)
            else:
                require(ahead == CLOCKS_APART, "Who lives in the future is refused", words)


def _check_limits(cast: Cast, monitor: psycopg.Connection) -> None:
    """A limit by the day holds on the next day from when that can be asked for, and a minute before
    that: somebody may open it with the old limit while the new one is not committed yet."""
    owner = cast.world.organization_ids[-1]
    midnight = datetime.combine(cast.now.date() + timedelta(days=1), time(), UTC)
    name = limit_budget_id(owner, "day")
    of_owner: dict[str, Any] = {
        "actor": OPERATOR, "organization": Organization.objects.get(id=owner),
    }  # fmt: skip
    terms: dict[str, Any] = {"owner_id": owner, "period": "day", "is_hard": True}
    with suppress(ObjectNotFound):
        remove_limit(**of_owner, budget_id=name, now=cast.now)
    for minutes, nanos in ((20.9, 1009), (19.9, 1013), (0, 1019)):
        now = midnight - timedelta(minutes=minutes)
        if nanos == 1009:
            add_limit(**of_owner, **terms, limit_nanos=nanos, now=now)
        else:
            change_limit(**of_owner, budget_id=name, limit_nanos=nanos, now=now)
        row = monitor.execute(PERIOD, [name, midnight]).fetchone()
        require(row == (nanos,), "A limit reaches what can be opened", row, nanos, minutes)
    ask = LeaseAsk(f"ahead {owner}", name, 1, 1, midnight)
    request = LeaseRequest("edge_a", midnight - 20 * MINUTE, "", (ask,))
    (given,) = answer(request, now=request.sent_at).answers
    is_right = isinstance(given, LeaseGrant) and given.admits_from == given.period == midnight
    require(is_right, "A period is granted of twenty minutes before it begins", given)
    assert isinstance(given, LeaseGrant)
    back = (LeaseReturn(given.lease_id, 0, True),)
    answer(LeaseRequest("edge_a", cast.now, "", (), back), now=cast.now)
    remove_limit(**of_owner, budget_id=name, now=request.sent_at)
