"""Money for requests: the leases of a gateway, and what each request reserves of every budget it
counts against. Settled once.

Admission spends locally; only when a budget's leases are short does a request wait for a lease
call, which `lease_sync.py` makes.
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
from serving.contract.usage import LeaseCharge
from serving.usage.clock import ClockReading, wall_clock
from serving.usage.lease import LeasePortion, Outbox, Parts
from serving.usage.lease_balance import LeaseBalance
from serving.usage.lease_refill import SpendForecast

Taken = tuple[LeaseBalance, Parts]
"""The parts of one budget, which together are the worst case, and the balance they are from."""


class BudgetReservation:
    """Ends in exactly one `charge` or `void`; a second is an error in our own code."""

    __slots__ = ("_charged", "_clock", "_ended", "_taken", "nanos")

    def __init__(self, nanos: int, taken: tuple[Taken, ...], clock: Callable[[], float]) -> None:
        self.nanos = nanos
        self._taken = taken
        self._clock = clock
        self._charged: list[LeasePortion] = []
        self._ended = False

    def parts(self) -> dict[str, int]:
        """Return what was held of which leases."""
        held: dict[str, int] = {}
        for part in chain.from_iterable(parts for _, parts in self._taken):
            held[part.lease.lease_id] = held.get(part.lease.lease_id, 0) + part.nanos
        return held

    def shrink(self, nanos: int) -> None:
        """Give back what is held beyond `nanos`: the worst case, now that more is known."""
        if self._ended or nanos >= self.nanos:
            return
        self.nanos, now = nanos, self._clock()
        self._taken = tuple(
            (balance, balance.shrink(parts, nanos, now)) for balance, parts in self._taken
        )

    def charge(self, nanos: int) -> tuple[LeaseCharge, ...]:
        """Take `nanos` from every budget, give the rest of the hold back, and say whence.

        Each lease touched waits for one more acknowledgement. More than was held is charged too
        (usage is a fact), to the last lease of the budget.
        """
        self._end()
        now = self._clock()
        for balance, parts in self._taken:
            self._charged += balance.settle(parts, nanos, now)
        return tuple(
            [
                LeaseCharge(part.lease.budget_id, part.lease.lease_id, part.nanos)
                for part in self._charged
            ]
        )

    def revoke(self) -> None:
        """Undo a charge whose event could not be made durable."""
        for part in self._charged:
            part.lease.revoke(part.nanos)
        self._charged = []

    def void(self) -> None:
        """Give everything back."""
        self._end()
        now = self._clock()
        for balance, parts in self._taken:
            balance.release(parts)
            balance.wake_fitting(now)

    def _end(self) -> None:
        if self._ended:
            raise RuntimeError("a hold ends once")
        self._ended = True


WAIT_SECONDS = 2.0
"""A request waits this long in all for money that is missing, unless requests under way hold it."""
LOOK_AGAIN_SECONDS = 0.5
WAITING_MAX = 512
"""Requests of one organization that may wait for what its others hold, as for a slot: each looks
again twice a second, on the loop that serves everybody."""


class ReservationUnavailable(Exception):
    """Nothing is held, and nobody said that there is no money: a retry may help."""


class BillingUnreachable(ReservationUnavailable):
    """Billing did not answer; nothing is known of the money."""


class LeasesRecalled(ReservationUnavailable):
    """The money lies idle in other gateways and is on its way back."""


class MoneyHeld(ReservationUnavailable):
    """The money is held for requests under way: what they leave of it is free again."""


class BudgetExceeded(Exception):
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


class LeaseManager:
    """Balances by budget and period, and the holds on them.

    `clock` is monotonic seconds; `wall` is the clock that event ids are made from. Balances that
    were held on since the last look are in `recently_used`, those that requests wait for in
    `underfunded`; then `shortage` is set.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = wall_clock,
        make_id: Callable[[], str] = new_id,
    ) -> None:
        self.recently_used: dict[LeaseBalance, None] = {}
        self.underfunded: dict[LeaseBalance, None] = {}
        self.shortage = asyncio.Event()
        self._outbox = outbox
        self._clock = clock
        self._wall = wall
        self._make_id = make_id
        self._balances: dict[str, list[LeaseBalance]] = {}
        self._waiting: Counter[str] = Counter()
        """Requests that wait, by the first budget of their chain: the organization's."""
        self._is_ending = False

    def now(self) -> ClockReading:
        """Return this instant on both clocks."""
        return ClockReading(self._clock(), self._wall())

    async def reserve(
        self,
        budget_ids: tuple[str, ...],
        nanos: int,
        received_at: datetime,
        *,
        patience_seconds: float = 0.0,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> BudgetReservation:
        """Set `nanos` aside on every budget, in the period of `received_at`, or on none. Money
        that requests under way hold is waited for until `patience_seconds` are over, or it is
        wanted no more; not where `WAITING_MAX` of the organization wait already.

        Raises BudgetExceeded when billing says no, ReservationUnavailable when it says nothing, or
        that the money is on its way.
        """
        balances = [self.balance(budget_id, received_at) for budget_id in budget_ids]
        began = self._clock()
        deadline = began + WAIT_SECONDS
        late: type[ReservationUnavailable] = BillingUnreachable
        while True:
            now = self._clock()
            taken, short = _reserve_on_all(balances, nanos, now)
            if not short:
                for balance in balances:
                    self.recently_used[balance] = None
                return BudgetReservation(nanos, taken, self._clock)
            late = _reason_to_wait(short, nanos, now) or late
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

    def stop_waiting(self) -> None:
        """Let nobody wait for money any more: the gateway ends."""
        self._is_ending = True
        for balance in self.all_balances():
            balance.wake()

    async def _wait(self, short: list[LeaseBalance], nanos: int, seconds: float) -> None:
        """Wait for news of any of the balances; they count `nanos` as needed meanwhile."""
        news = asyncio.get_running_loop().create_future()
        for balance in short:
            balance.add_waiter(news, nanos)
            self.underfunded[balance] = None
        self.shortage.set()
        try:
            async with asyncio.timeout(seconds):
                await news
        except TimeoutError:
            return
        finally:
            for balance in short:
                balance.remove_waiter(news)

    def balance(self, budget_id: str, at: datetime) -> LeaseBalance:
        """Return the balance of the period that a moment lies in."""
        balances = self._balances.setdefault(budget_id, [])
        for balance in balances:
            if balance.covers(at):
                return balance
        starts_at = period_start(budget_id, at)
        period = (starts_at, period_end(budget_id, starts_at))
        forecast = balances[0].forecast if balances else SpendForecast()
        balance = LeaseBalance(budget_id, period, forecast, self._outbox, self._make_id)
        balances.append(balance)
        return balance

    def balances_of(self, budget_id: str) -> list[LeaseBalance]:
        """Return the balances of a budget, one for each period."""
        return self._balances.get(budget_id, [])

    def all_balances(self) -> Iterator[LeaseBalance]:
        """Return every balance there is."""
        return chain.from_iterable(self._balances.values())

    def drop(self, balance: LeaseBalance) -> None:
        """Forget a balance that nobody uses."""
        self.recently_used.pop(balance, None)
        self.underfunded.pop(balance, None)
        others = [other for other in self._balances[balance.budget_id] if other is not balance]
        if others:
            self._balances[balance.budget_id] = others
        else:
            del self._balances[balance.budget_id]

    def held_nanos(self) -> int:
        """Return what requests under way hold."""
        return sum(balance.held_nanos for balance in self.all_balances())


def _reserve_on_all(
    balances: list[LeaseBalance], nanos: int, now: float
) -> tuple[tuple[Taken, ...], list[LeaseBalance]]:
    """Reserve on all balances or on none; return what was reserved, and the balances that are
    short."""
    taken: list[Taken] = []
    short: list[LeaseBalance] = []
    for balance in balances:
        parts = balance.try_reserve(nanos, now)
        if parts is None:
            short.append(balance)
        else:
            taken.append((balance, parts))
    if not short:
        return tuple(taken), short
    for balance, parts in taken:
        balance.release(parts)
    return (), short


def _reason_to_wait(
    short: list[LeaseBalance], nanos: int, now: float
) -> type[ReservationUnavailable] | None:
    """Return for what to wait by what billing has said of the short balances, None where it has
    said nothing yet. Raises BudgetExceeded where there is nothing to wait for."""
    why: type[ReservationUnavailable] | None = None
    for balance in short:
        refusal = balance.refusal_for(nanos, now)
        if refusal is None:
            continue
        if refusal.recall_in_progress:
            why = why or LeasesRecalled
        elif balance.may_cover(nanos, refusal, now):
            why = MoneyHeld
        else:
            available_nanos = refusal.available_nanos + balance.spendable(now)
            raise BudgetExceeded(
                refusal.code,
                available_nanos=available_nanos,
                budget_id=balance.budget_id,
                held_nanos=balance.held_nanos + refusal.held_nanos,
                limit_nanos=refusal.limit_nanos,
                ends_at=balance.ends_at,
            )
    return why
