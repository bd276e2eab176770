"""The treasury: every purse of a gateway, and the money that requests hold on them.

Admission spends locally; only when a purse is short does a request wait for a lease call, which
`poll.py` makes.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import chain

from serving.contract.budget import period_end, period_start
from serving.contract.ids import new_id
from serving.usage.demand import Demand
from serving.usage.hold import Hold, Taken
from serving.usage.lease import Outbox
from serving.usage.moment import Moment, wall_clock
from serving.usage.purse import Purse

WAIT_SECONDS = 2.0
"""How long a request waits in all for money that is not here, unless requests under way hold it."""
LOOK_AGAIN_SECONDS = 0.5
WAITING_MAX = 512
"""Requests of one organization that may wait for what its others hold, as for a slot: each looks
again twice a second, on the loop that serves everybody."""


class MoneyUnavailable(Exception):
    """Nothing is held, and nobody said that there is no money: a retry may help."""


class BillingUnreachable(MoneyUnavailable):
    """Billing did not answer; nothing is known of the money."""


class MoneyRecalled(MoneyUnavailable):
    """The money lies idle in other gateways and is on its way back."""


class MoneyHeld(MoneyUnavailable):
    """The money is held for requests under way: what they leave of it is free again."""


class BudgetRefused(Exception):
    """A budget of the chain has less than the request's worst case: `available_nanos` of its
    `limit_nanos` (None where billing did not say), until it renews at `ends_at` (None: never).
    Requests in progress hold `held_nanos` beside that."""

    def __init__(
        self,
        code: str,
        *,
        available_nanos: int,
        budget_id: str,
        held_nanos: int = 0,
        limit_nanos: int | None = None,
        ends_at: datetime | None = None,
    ) -> None:
        super().__init__(code)
        self.code = code
        self.available_nanos = available_nanos
        self.budget_id = budget_id
        self.held_nanos = held_nanos
        self.limit_nanos = limit_nanos
        self.ends_at = ends_at


class Treasury:
    """Purses by budget and period, and the holds on them.

    `clock` is monotonic seconds; `wall` is the clock that event ids are made from. What was held
    on since the last look is in `used`, what requests wait for in `wanted`; then `short` is set.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = wall_clock,
        make_id: Callable[[], str] = new_id,
    ) -> None:
        self.used: dict[Purse, None] = {}
        self.wanted: dict[Purse, None] = {}
        self.short = asyncio.Event()
        self._outbox = outbox
        self._clock = clock
        self._wall = wall
        self._make_id = make_id
        self._purses: dict[str, list[Purse]] = {}
        self._waiting: Counter[str] = Counter()
        """Requests that wait, by the first budget of their chain: the organization's."""
        self._is_ending = False

    def now(self) -> Moment:
        """Return this instant on both clocks."""
        return Moment(self._clock(), self._wall())

    async def hold(
        self,
        budget_ids: tuple[str, ...],
        nanos: int,
        received_at: datetime,
        *,
        patience_seconds: float = 0.0,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Hold:
        """Set `nanos` aside on every budget, in the period of `received_at`, or on none. What
        requests under way hold is waited for until `patience_seconds` are over, or it is wanted no
        more; not where `WAITING_MAX` of the organization wait already.

        Raises BudgetRefused when billing says no, MoneyUnavailable when it says nothing, or that
        the money is on its way.
        """
        purses = [self.purse(budget_id, received_at) for budget_id in budget_ids]
        began = self._clock()
        deadline = began + WAIT_SECONDS
        late: type[MoneyUnavailable] = BillingUnreachable
        while True:
            now = self._clock()
            taken, short = _take(purses, nanos, now)
            if not short:
                for purse in purses:
                    self.used[purse] = None
                return Hold(nanos, taken, self._clock)
            late = _why_wait(short, nanos, now) or late
            is_crowded = False
            if late is MoneyHeld:
                deadline = began + patience_seconds
                is_crowded = self._waiting[budget_ids[0]] >= WAITING_MAX
            if now >= deadline or is_crowded or self._is_ending or not is_wanted():
                raise late
            with self._counted(budget_ids[0]):
                await self._wait(short, nanos, min(deadline - now, LOOK_AGAIN_SECONDS))

    @contextmanager
    def _counted(self, budget_id: str) -> Iterator[None]:
        self._waiting[budget_id] += 1
        try:
            yield
        finally:
            self._waiting[budget_id] -= 1
            if not self._waiting[budget_id]:
                del self._waiting[budget_id]

    def end_waits(self) -> None:
        """Let nobody wait for money any more: the gateway ends."""
        self._is_ending = True
        for purse in self.all_purses():
            purse.wake()

    async def _wait(self, short: list[Purse], nanos: int, seconds: float) -> None:
        """Wait for news of any of the purses; they count `nanos` as needed meanwhile."""
        news = asyncio.get_running_loop().create_future()
        for purse in short:
            purse.add_waiter(news, nanos)
            self.wanted[purse] = None
        self.short.set()
        try:
            async with asyncio.timeout(seconds):
                await news
        except TimeoutError:
            return
        finally:
            for purse in short:
                purse.remove_waiter(news)

    def purse(self, budget_id: str, at: datetime) -> Purse:
        """Return the purse of the period that a moment lies in."""
        purses = self._purses.setdefault(budget_id, [])
        for purse in purses:
            if purse.covers(at):
                return purse
        starts_at = period_start(budget_id, at)
        period = (starts_at, period_end(budget_id, starts_at))
        demand = purses[0].demand if purses else Demand()
        purse = Purse(budget_id, period, demand, self._outbox, self._make_id)
        purses.append(purse)
        return purse

    def purses_of(self, budget_id: str) -> list[Purse]:
        """Return the purses of a budget, one for each period."""
        return self._purses.get(budget_id, [])

    def all_purses(self) -> Iterator[Purse]:
        """Return every purse there is."""
        return chain.from_iterable(self._purses.values())

    def drop(self, purse: Purse) -> None:
        """Forget a purse that nobody uses."""
        self.used.pop(purse, None)
        self.wanted.pop(purse, None)
        others = [other for other in self._purses[purse.budget_id] if other is not purse]
        if others:
            self._purses[purse.budget_id] = others
        else:
            del self._purses[purse.budget_id]

    def held_nanos(self) -> int:
        """Return what requests under way hold."""
        return sum(purse.held_nanos for purse in self.all_purses())


def _take(purses: list[Purse], nanos: int, now: float) -> tuple[tuple[Taken, ...], list[Purse]]:
    """Hold on all purses or on none; return what was held, and the purses that are short."""
    taken: list[Taken] = []
    short: list[Purse] = []
    for purse in purses:
        parts = purse.try_hold(nanos, now)
        if parts is None:
            short.append(purse)
        else:
            taken.append((purse, parts))
    if not short:
        return tuple(taken), short
    for purse, parts in taken:
        purse.release(parts)
    return (), short


def _why_wait(short: list[Purse], nanos: int, now: float) -> type[MoneyUnavailable] | None:
    """Return for what to wait by what billing has said of the short purses, None where it has said
    nothing yet. Raises BudgetRefused where there is nothing to wait for."""
    why: type[MoneyUnavailable] | None = None
    for purse in short:
        refusal = purse.refuses(nanos, now)
        if refusal is None:
            continue
        if refusal.recall_in_progress:
            why = why or MoneyRecalled
        elif purse.may_cover(nanos, refusal, now):
            why = MoneyHeld
        else:
            available_nanos = refusal.available_nanos + purse.spendable(now)
            raise BudgetRefused(
                refusal.code,
                available_nanos=available_nanos,
                budget_id=purse.budget_id,
                held_nanos=purse.held_nanos + refusal.held_nanos,
                limit_nanos=refusal.limit_nanos,
                ends_at=purse.ends_at,
            )
    return why
