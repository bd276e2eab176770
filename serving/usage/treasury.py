"""The treasury: every purse of a gateway, and the one poll that keeps them filled.

Admission spends locally; only when a purse is short does a request wait for a lease call.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import structlog

from serving.contract.ids import new_id
from serving.contract.lease import Ask, Granted, LeaseReply, LeaseRequest, Return
from serving.contract.usage import LeaseCharge
from serving.usage.hold import Hold, Parts, release
from serving.usage.journal import Journal, KnownLease
from serving.usage.lease import Lease
from serving.usage.purse import Purse

log = structlog.get_logger(__name__)

Exchange = Callable[[LeaseRequest], Awaitable[LeaseReply]]
"""One call to billing. Raises BillingUnreachable."""

POLL_SECONDS = 0.5
"""Recalls are heard of within this; the contract asks for at least one poll a second."""
WAIT_SECONDS = 2.0
EXPIRY_MARGIN_SECONDS = 10.0
BACKOFF_SECONDS = 0.5
ASKS_MAX = 500


class BillingUnreachable(Exception):
    """Billing did not answer; nothing is known of the money."""


class BudgetRefused(Exception):
    """A budget of the chain has less than the request's worst case."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Treasury:
    """Holds, leases and the poll. `clock` is monotonic seconds."""

    def __init__(
        self,
        exchange: Exchange,
        journal: Journal,
        *,
        clock: Callable[[], float] = time.monotonic,
        make_id: Callable[[], str] = new_id,
    ) -> None:
        self.leases: dict[str, Lease] = {}
        self._purses: dict[str, Purse] = {}
        self._exchange = exchange
        self._journal = journal
        self._clock = clock
        self._make_id = make_id
        self._short = asyncio.Event()
        self._is_closing = False

    def adopt(self, left: list[KnownLease]) -> None:
        """Take over the leases of a previous life: they admit nothing and go back when settled."""
        for known in left:
            self.leases[known.lease_id] = Lease(
                known.lease_id,
                known.budget_id,
                known.granted_nanos,
                admits_until=0.0,
                charged_nanos=known.charged_nanos,
                unacknowledged=known.unacknowledged,
                stopped=True,
            )

    async def hold(self, budget_ids: tuple[str, ...], nanos: int) -> Hold:
        """Set `nanos` aside on every budget, or on none.

        Raises BudgetRefused when billing says no, BillingUnreachable when it says nothing.
        """
        taken: list[Parts] = []
        try:
            for budget_id in budget_ids:
                taken.append(await self._take(self._purse(budget_id), nanos))
        except BaseException:
            for parts in taken:
                release(parts)
            raise
        return Hold(nanos, tuple(taken))

    def _purse(self, budget_id: str) -> Purse:
        purse = self._purses.get(budget_id)
        if purse is None:
            purse = self._purses[budget_id] = Purse(budget_id, self._make_id)
        return purse

    async def _take(self, purse: Purse, nanos: int) -> Parts:
        now = self._clock()
        deadline = now + WAIT_SECONDS
        while (parts := purse.try_hold(nanos, now)) is None:
            refusal = purse.refuses(nanos, now)
            if refusal is not None and (not refusal.recall_in_progress or now >= deadline):
                raise BudgetRefused(refusal.code)
            if now >= deadline:
                raise BillingUnreachable
            self._short.set()
            await purse.wait(nanos, min(deadline - now, POLL_SECONDS))
            now = self._clock()
        return parts

    def acknowledged(self, charges: list[LeaseCharge]) -> None:
        """Hear that billing has booked these charges."""
        for charge in charges:
            lease = self.leases.get(charge.lease_id)
            if lease is not None:
                lease.unacknowledged -= 1

    def granted_nanos(self) -> int:
        """Return the money of all leases not yet closed."""
        return sum(lease.granted_nanos for lease in self.leases.values())

    def held_nanos(self) -> int:
        """Return what requests under way hold."""
        return sum(lease.held_nanos for lease in self.leases.values())

    async def run(self) -> None:
        """Poll for ever: at once when short, else every half second."""
        while True:
            try:
                await self.poll()
            except BillingUnreachable as error:
                log.warning("leases_unreachable", error=str(error))
                await asyncio.sleep(BACKOFF_SECONDS)
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._short.wait()
            except TimeoutError:
                continue

    async def poll(self) -> None:
        """Ask for what is short, return what is stopped, and take the answers in."""
        self._short.clear()
        now = self._clock()
        asks = self._asks(now)
        returns = [back for lease in self.leases.values() if (back := lease.due_return(now))]
        if not asks and not returns and not self.leases:
            return
        reply = await self._exchange(
            LeaseRequest(self._journal.gateway_id, tuple(asks[:ASKS_MAX]), tuple(returns))
        )
        self._take_back(returns)
        self._take_in(reply)
        if len(asks) > ASKS_MAX:
            self._short.set()

    def _asks(self, now: float) -> list[Ask]:
        """Return what is short; a gateway that closes only repeats what it asked before."""
        if self._is_closing:
            return [purse.ask for purse in self._purses.values() if purse.ask is not None]
        for budget_id in [id_ for id_, purse in self._purses.items() if purse.is_idle(now)]:
            del self._purses[budget_id]
        return [ask for purse in self._purses.values() if (ask := purse.next_ask(now))]

    async def give_all_back(self) -> None:
        """Return every lease: a gateway that shuts down in order.

        The second round returns what an ask still open brought in the first.
        """
        self._is_closing = True
        for _ in range(2):
            for lease in self.leases.values():
                lease.stopped = True
            await self.poll()

    def _take_in(self, reply: LeaseReply) -> None:
        now = self._clock()
        for answer in reply.answers:
            purse = self._purses.get(answer.budget_id)
            if purse is None:
                continue
            if isinstance(answer, Granted):
                self._accept(purse, answer, now)
            else:
                purse.believe(answer, now)
        for lease_id in reply.recalls:
            if (recalled := self.leases.get(lease_id)) is not None:
                recalled.stopped = True
                self._short.set()

    def _accept(self, purse: Purse, answer: Granted, now: float) -> None:
        lease = purse.accept(answer, self._admits_until(answer.expires_at))
        if lease is None:
            return
        self.leases[lease.lease_id] = lease
        self._journal.note_lease(lease.lease_id, lease.budget_id, lease.granted_nanos)
        if lease.admits(now):
            purse.wake()
        else:
            # Waking would only make the waiters ask again at once, until all money is leased.
            log.error("lease_expired_when_granted", lease_id=lease.lease_id)

    def _admits_until(self, expires_at: datetime) -> float:
        left_seconds = (expires_at - datetime.now(UTC)).total_seconds()
        return self._clock() + left_seconds - EXPIRY_MARGIN_SECONDS

    def _take_back(self, returns: list[Return]) -> None:
        for back in returns:
            lease = self.leases[back.lease_id]
            lease.kept_nanos = back.keep_nanos
            purse = self._purses.get(lease.budget_id)
            if purse is not None and lease in purse.leases:
                purse.leases.remove(lease)
            if back.closed:
                del self.leases[back.lease_id]
                self._journal.forget_lease(back.lease_id)
