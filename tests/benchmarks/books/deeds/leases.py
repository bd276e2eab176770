"""What a gateway asks of leases: many at once, until each ask is granted."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from django.utils import timezone

from billing.credit.services.leases import answer
from serving.contract.ids import new_id
from serving.contract.lease import (
    ASKS_MAX,
    LeaseAsk,
    LeaseDenial,
    LeaseGrant,
    LeaseReply,
    LeaseRequest,
    LeaseReturn,
)
from tests.benchmarks.failure import BenchmarkFailed

NEED_NANOS = 10**6
MUCH_NANOS = 10**13
"""Ten thousand dollars: no benchmark runs long enough to spend them from one lease."""


def take_leases(gateway: str, budget_ids: Iterable[str]) -> dict[str, str]:
    """Return a lease of each budget."""
    leases: dict[str, str] = {}
    wanted = list(budget_ids)
    for start in range(0, len(wanted), ASKS_MAX):
        leases |= granted(gateway, asks_for(wanted[start : start + ASKS_MAX], MUCH_NANOS))
    return leases


def asks_for(
    budget_ids: Iterable[str], want_nanos: int, now: datetime | None = None
) -> list[LeaseAsk]:
    """Return an ask for each budget."""
    now = now or timezone.now()
    return [
        LeaseAsk(new_id(), one, NEED_NANOS, max(want_nanos, NEED_NANOS), now) for one in budget_ids
    ]


def granted(
    gateway: str,
    asks: Sequence[LeaseAsk],
    returns: Sequence[LeaseReturn] = (),
    now: datetime | None = None,
) -> dict[str, str]:
    """Poll until every ask is granted; return the leases by their budgets."""
    leases: dict[str, str] = {}
    while asks:
        reply = poll(gateway, asks, returns, now or timezone.now())
        leases |= {
            one.budget_id: one.lease_id for one in reply.answers if isinstance(one, LeaseGrant)
        }
        again = {one.ask_id for one in reply.answers if not isinstance(one, LeaseGrant)}
        asks = [msgspec.structs.replace(ask, deferred=True) for ask in asks if ask.ask_id in again]
        returns = [one for one in returns if one.lease_id not in set(reply.returned)]
    return leases


def poll(
    gateway: str, asks: Sequence[LeaseAsk], returns: Sequence[LeaseReturn], now: datetime
) -> LeaseReply:
    """Ask billing once. Raises BenchmarkFailed where it refuses: there is money for all."""
    reply = answer(LeaseRequest(gateway, now, asks=tuple(asks), returns=tuple(returns)), now=now)
    refused = [one for one in reply.answers if isinstance(one, LeaseDenial)]
    if refused:
        raise BenchmarkFailed(f"billing refused a lease: {refused[0]}")
    return reply
