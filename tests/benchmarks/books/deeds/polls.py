"""A gateway that returns all its leases in one poll, and asks for others."""

import random
import time

from django.db import connection
from django.utils import timezone

from billing.credit.services.leases import answer
from serving.contract.codec import decode, encode
from serving.contract.lease import (
    ASKS_MAX,
    LeaseDeferral,
    LeaseGrant,
    LeaseReply,
    LeaseRequest,
    LeaseReturn,
)
from tests.benchmarks.books.deeds.leases import NEED_NANOS, asks_for, granted
from tests.benchmarks.books.deeds.statements import counted
from tests.benchmarks.books.deeds.world import callers
from tests.benchmarks.books.results import Polled

_held: dict[str, str] = {}
"""The leases of this process's gateway, by their budgets."""


def get_ready(gateway: str) -> None:
    """Take a lease of every budget."""
    _fill_up(gateway)


def poll_until(gateway: str, until: float, asked: int = ASKS_MAX) -> Polled:
    """Poll and fill up again, in turn, until a moment."""
    polled, chance = Polled(), random.Random(gateway)
    while time.time() < until:
        asks = asks_for(chance.sample(_budget_ids(), asked), NEED_NANOS)
        returns = tuple(LeaseReturn(lease_id, 0, True) for lease_id in _held.values())
        body = encode(LeaseRequest(gateway, timezone.now(), asks=tuple(asks), returns=returns))
        with counted(connection) as statements:
            began = time.perf_counter()
            reply = answer(decode(body, LeaseRequest), now=timezone.now())
            encode(reply)
            polled.milliseconds.append((time.perf_counter() - began) * 1000)
        polled.statements.append(len(statements))
        _note(polled, reply)
        _fill_up(gateway)
    return polled


def _note(polled: Polled, reply: LeaseReply) -> None:
    """Count what came of a poll, and hold what is held after it."""
    back = set(reply.returned)
    for budget_id in [name for name, lease_id in _held.items() if lease_id in back]:
        del _held[budget_id]
    got = [one for one in reply.answers if isinstance(one, LeaseGrant)]
    for one in got:
        _held.setdefault(one.budget_id, one.lease_id)
    polled.granted += len(got)
    polled.deferred += sum(isinstance(one, LeaseDeferral) for one in reply.answers)
    polled.returned += len(back)


def _fill_up(gateway: str) -> None:
    missing = [name for name in _budget_ids() if name not in _held]
    for start in range(0, len(missing), ASKS_MAX):
        asks = asks_for(missing[start : start + ASKS_MAX], NEED_NANOS)
        _held.update(granted(gateway, asks))


def _budget_ids() -> list[str]:
    return list(dict.fromkeys(name for one in callers() for name in one.budget_ids))
