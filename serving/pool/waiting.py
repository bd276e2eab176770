"""A request's wait before all pools that it may be worked on in, for the first that has a place."""

import asyncio
from collections.abc import Collection
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from serving.pool.errors import PoolError
from serving.pool.member import Place, Waiter
from serving.pool.ticket import Ticket

if TYPE_CHECKING:
    from serving.pool.pool import Pool


async def wait_before(pools: list["Pool"], ticket: Ticket, avoid: Collection[str]) -> Place:
    """Stand in line before each pool until one gives it a place; that takes it out of all lines.

    What it waits with counts in the first pool, what it runs with in the one that it runs in.
    Raises PoolError.
    """
    first, *others = pools
    if first.is_waking:
        ticket = replace(ticket, seconds_max=first.wake_seconds)
    waiter = first.queue.join(ticket, avoid, [pool.queue for pool in others])
    first.pressure.add(ticket)
    try:
        _call(pools)
        if len(first.queue) == 1:
            first.on_demand()
        place = await _turn_of(waiter, pools)
    finally:
        first.pressure.remove(ticket)
    place.pool.pressure.add(ticket)
    return place


async def _turn_of(waiter: Waiter, pools: Collection["Pool"]) -> Place:
    try:
        async with asyncio.timeout(waiter.ticket.seconds_max):
            turn = await waiter.turn
    except TimeoutError:
        if waiter.turn.cancelled():
            raise _in_vain(waiter, pools) from None
        turn = waiter.turn.result()
    except asyncio.CancelledError:
        _withdraw(waiter)
        raise
    if isinstance(turn, PoolError):
        raise copy(turn)  # the first is kept by the waiter, which this frame keeps
    return turn


def _in_vain(waiter: Waiter, pools: Collection["Pool"]) -> PoolError:
    """Return what to tell one whose deadline came before its turn."""
    first = next(iter(pools))
    refused = first.queue.give_up(waiter)
    has_ready = any(pool.has_ready_replica for pool in pools)
    return refused if has_ready else first.no_replica()


def _withdraw(waiter: Waiter) -> None:
    """The client left, maybe just as it was given a place."""
    if not waiter.turn.done() or waiter.turn.cancelled():
        waiter.leave()
    elif isinstance(place := waiter.turn.result(), Place):
        place.pool.queue.refund(place.service)
        place.pool.free(place)


def _call(pools: Collection["Pool"]) -> None:
    for pool in pools:
        pool.call()
