"""Leases asked for and returned: one call of billing at a time, answers and recalls back."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice

import msgspec
import structlog

from serving.contract.lease import (
    ASKS_MAX,
    RETURNS_MAX,
    Answer,
    LeaseAsk,
    LeaseDeferral,
    LeaseDenial,
    LeaseGrant,
    LeaseReply,
    LeaseRequest,
    LeaseReturn,
)
from serving.contract.usage import LeaseCharge
from serving.internal_http import InternalCallError, InternalHttpClient
from serving.usage.clock import ClockReading
from serving.usage.control_api import DatabaseIdentityCheck
from serving.usage.journal import Journal
from serving.usage.journal_writer import JournalUnavailable
from serving.usage.lease import (
    JournaledLease,
    Lease,
    LeaseTerms,
    Outbox,
    ReturnReason,
    is_clock_set_back,
)
from serving.usage.lease_balance import LeaseBalance
from serving.usage.leases import BillingUnreachable, LeaseManager

log = structlog.get_logger(__name__)


RETRY_SECONDS = 0.5
RETRY_MAX_SECONDS = 60.0


@dataclass(slots=True)
class ReturnBackoff:
    """The number of answers that left a return out, and when it is sent again."""

    tries: int
    until: float


class LeaseReturnQueue:
    """Serves the outbox that stopped leases put themselves into. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self.outbox: Outbox = {}
        self._waits: dict[str, ReturnBackoff] = {}

    def page(self, now: float, limit: int) -> list[LeaseReturn]:
        """Return what billing should be told now, at most `limit`."""
        page: list[LeaseReturn] = []
        for lease_id in list(islice(self._due(now), limit)):
            back = self.outbox[lease_id].due_return()
            if back is None:
                self._remove(lease_id)
            else:
                page.append(back)
        return page

    def acknowledge(self, back: LeaseReturn) -> None:
        """Note that billing took a return."""
        lease = self.outbox.get(back.lease_id)
        if lease is None:
            return
        lease.kept_nanos = back.keep_nanos
        self._waits.pop(back.lease_id, None)
        if back.closed or lease.due_return() is None:
            self._remove(back.lease_id)

    def retry_later(self, back: LeaseReturn, now: float) -> None:
        """Put a return that billing left out of its answer at the end of the queue: it
        waits longer each time."""
        lease = self.outbox.pop(back.lease_id, None)
        if lease is None:
            return
        self.outbox[back.lease_id] = lease
        wait = self._waits.setdefault(back.lease_id, ReturnBackoff(0, now))
        wait.until = now + min(RETRY_MAX_SECONDS, RETRY_SECONDS * 2 ** min(wait.tries, 10))
        wait.tries += 1

    def clear(self) -> None:
        """Forget everything."""
        self.outbox.clear()
        self._waits.clear()

    def _due(self, now: float) -> Iterator[str]:
        waits = self._waits
        if not waits:
            return iter(self.outbox)
        return (id_ for id_ in self.outbox if id_ not in waits or waits[id_].until <= now)

    def _remove(self, lease_id: str) -> None:
        del self.outbox[lease_id]
        self._waits.pop(lease_id, None)


Exchange = Callable[[LeaseRequest], Awaitable[LeaseReply]]
"""One call to billing. Raises BillingUnreachable."""

LEASE_SECONDS = 2.0
POLL_SECONDS = 0.5
"""Recalls are heard of within this; the contract asks for at least one poll a second."""
BACKOFF_SECONDS = 0.5
AHEAD_OF_PERIOD_SECONDS = 900.0
"""Leases are asked for this long before their period begins."""
LOOKS_MAX = 500
"""At most so many balances are looked at before one call: a look takes some microseconds."""
PAGE_MIN = 50


async def exchange_leases(api: InternalHttpClient, request: LeaseRequest) -> LeaseReply:
    """Exchange asks and returns for answers and recalls. Raises BillingUnreachable."""
    try:
        return await api.post("leases", request, LeaseReply, LEASE_SECONDS)
    except InternalCallError as error:
        raise BillingUnreachable(str(error)) from error


@dataclass(slots=True)
class LeaseSyncStats:
    """Counts of the poll, for metrics."""

    answers: int = 0
    deferred: int = 0
    failures: int = 0


class LeaseSync:
    """Keeps the balances of a `LeaseManager` filled, and gives back what they need no more.

    `leases` are all that billing counts as ours, those of a previous life included.
    """

    def __init__(
        self,
        exchange: Exchange,
        lease_manager: LeaseManager,
        returns: LeaseReturnQueue,
        journal: Journal,
        lineage: DatabaseIdentityCheck,
    ) -> None:
        self.leases: dict[str, Lease] = {}
        self.counts = LeaseSyncStats()
        self._exchange = exchange
        self._lease_manager = lease_manager
        self._returns = returns
        self._journal = journal
        self._lineage = lineage
        self._open: dict[str, LeaseBalance] = {}
        """Balances with an ask that is not answered, by ask, in the order of their turn."""
        self._remaining_round: list[LeaseBalance] = []
        self._has_more = False
        self._share = 1.0
        """The part of a whole page that billing answered in time."""
        self._polled_at = float("-inf")
        self._one_at_a_time = asyncio.Lock()
        self._is_closing = False
        lineage.on_change(self.abandon_all)

    def adopt(self, recovered: Iterable[JournaledLease], *, goes_on: bool = True) -> None:
        """Take over the leases of an earlier process. Those in force by their terms go on, less the
        worst case of what was under way; the others admit nothing and go back. So do all where
        another gateway takes them over (not `goes_on`)."""
        now, recovered = self._lease_manager.now(), list(recovered)
        is_set_back = is_clock_set_back(recovered, self._journal.latest_at, now)
        returned = Counter[ReturnReason]()
        for known in recovered:
            lease = Lease(
                known.lease_id,
                known.budget_id,
                known.granted_nanos,
                admits_from=0.0,
                admits_until=0.0,
                charged_nanos=known.charged_nanos,
                unacknowledged=known.unacknowledged,
                kept_nanos=None if known.granted_nanos else 0,
                is_in_force_on_disk=known.terms is not None,
            )
            self.leases[known.lease_id] = lease
            terms = known.terms if goes_on else None
            reason: ReturnReason | None = None
            if is_set_back:
                reason = "clock_set_back"
            elif terms is not None:
                reason = terms.return_reason(known.budget_id, self._lineage.known, now)
            if terms is not None and reason is None:
                self._adopt_lease(lease, terms, now)
            else:
                lease.stop(self._returns.outbox)
                returned[reason or "not_in_force"] += 1
        if recovered:
            adopted = len(recovered) - returned.total()
            if adopted:
                self._journal.record_clock(now)
            log.info("leases_recovered", adopted=adopted, returned=dict(returned))

    def _adopt_lease(self, lease: Lease, terms: LeaseTerms, now: ClockReading) -> None:
        lease.granted_nanos -= terms.lost_nanos
        lease.admits_from = terms.on_monotonic(terms.admits_from, now)
        lease.admits_until = terms.on_monotonic(terms.admits_until, now)
        period_at = datetime.fromtimestamp(terms.period_at, UTC)
        self._lease_manager.balance(lease.budget_id, period_at).leases.append(lease)

    def acknowledged(self, charges: Iterable[LeaseCharge]) -> None:
        """Hear that billing has booked these charges."""
        for charge in charges:
            lease = self.leases.get(charge.lease_id)
            if lease is not None:
                lease.acknowledge()

    @property
    def has_never_been_answered(self) -> bool:
        """Whether billing was asked and answered no call, and no lease of a life before is left:
        there is no money to serve by."""
        is_unanswered = self.counts.failures > 0 and self.counts.answers == 0
        return is_unanswered and all(lease.is_stopped for lease in self.leases.values())

    def granted_nanos(self) -> int:
        """Return the money of all leases not yet closed."""
        return sum(lease.granted_nanos for lease in self.leases.values())

    def abandon_all(self) -> None:
        """Forget every lease: the database that granted them is no more. Requests under way run
        on, and their events still name what they charged."""
        for lease in self.leases.values():
            lease.abandon()
        for balance in self._lease_manager.all_balances():
            balance.leases.clear()
        self._journal.forget_leases(list(self.leases))
        self._returns.clear()
        self.leases.clear()

    async def run(self) -> None:
        """Poll for ever: at once when a request waits, else every half second."""
        while True:
            try:
                await self.sync_once()
            except BillingUnreachable as error:
                log.warning("leases_unreachable", error=str(error))
                await asyncio.sleep(BACKOFF_SECONDS)
            try:
                async with asyncio.timeout(self._pause_seconds()):
                    await self._lease_manager.shortage.wait()
            except TimeoutError:
                continue

    async def sync_once(self) -> None:
        """Send one page of what is due, and take its answers in. Raises BillingUnreachable."""
        async with self._one_at_a_time:
            self._lease_manager.shortage.clear()
            request = self._request(self._lease_manager.now())
            if request is not None:
                request = await self._ended_on_disk(request)
                self._apply_reply(
                    request, await self._call(request), self._lease_manager.now().monotonic
                )

    async def _call(self, request: LeaseRequest) -> LeaseReply:
        try:
            reply = await self._exchange(request)
        except BillingUnreachable:
            self.counts.failures += 1
            self._share = max(self._share / 2, PAGE_MIN / RETURNS_MAX)
            raise
        self.counts.answers += 1
        self._share = min(1.0, self._share * 2)
        return reply

    async def _ended_on_disk(self, request: LeaseRequest) -> LeaseRequest:
        """Have the disk know first of what goes back, since billing gives that to others: what the
        disk does not take goes back later."""
        ending = [
            lease
            for back in request.returns
            if (lease := self.leases.get(back.lease_id)) and lease.is_in_force_on_disk
        ]
        if not ending:
            return request
        try:
            await self._journal.end_leases([lease.lease_id for lease in ending])
        except JournalUnavailable:
            return msgspec.structs.replace(request, returns=())
        for lease in ending:
            lease.is_in_force_on_disk = False
        return request

    async def return_all(self) -> None:
        """Return every lease: a gateway that shuts down in order. Raises BillingUnreachable; where
        billing was away before, the leases are the next life's.

        Open asks are repeated first, since what they bring has to go back too.
        """
        self._is_closing = True
        if self.leases:
            async with self._one_at_a_time:
                await self._call(self._empty_request())
        pages = 2 + len(self.leases) // RETURNS_MAX + len(self._open) // ASKS_MAX
        for _ in range(pages):
            for lease in self.leases.values():
                lease.stop(self._returns.outbox)
            await self.sync_once()

    def _request(self, now: ClockReading) -> LeaseRequest | None:
        """Return the next page; None when there is nothing to say and nothing to hear."""
        has_more = not self._is_closing and self._open_asks(now)
        asks_max, returns_max = self._page_size(ASKS_MAX), self._page_size(RETURNS_MAX)
        asks = self._asks(now.monotonic)
        returns = self._returns.page(now.monotonic, returns_max)
        self._has_more = has_more or len(asks) > asks_max or len(returns) == returns_max
        is_news_due = now.monotonic - self._polled_at >= POLL_SECONDS and (
            self.leases or self.has_never_been_answered
        )
        if not (asks or returns or is_news_due):
            return None
        self._polled_at = now.monotonic
        return LeaseRequest(
            self._journal.gateway_id,
            sent_at=now.wall,
            lineage=self._lineage.known,
            asks=tuple(asks[:asks_max]),
            returns=tuple(returns),
        )

    def _empty_request(self) -> LeaseRequest:
        sent_at = self._lease_manager.now().wall
        return LeaseRequest(self._journal.gateway_id, sent_at, self._lineage.known)

    def _open_asks(self, now: ClockReading) -> bool:
        """Open the asks that are due; return whether requests wait on balances not looked at."""
        lease_manager = self._lease_manager
        has_more = len(lease_manager.underfunded) > LOOKS_MAX
        balances = dict.fromkeys(
            islice(chain(lease_manager.underfunded, lease_manager.recently_used), LOOKS_MAX)
        )
        balances |= dict.fromkeys(self._next_in_turn(LOOKS_MAX - len(balances)))
        for balance in balances:
            lease_manager.recently_used.pop(balance, None)
            lease_manager.underfunded.pop(balance, None)
            ask = balance.next_ask(now)
            if ask is not None:
                self._open[ask.ask_id] = balance
            if balance.has_waiters:
                lease_manager.underfunded[balance] = None
            elif balance.is_unused(now):
                lease_manager.drop(balance)
            else:
                self._begin_next_period(balance, now)
        return has_more

    def _next_in_turn(self, limit: int) -> list[LeaseBalance]:
        """Return balances that nobody used: their leases come to an end too."""
        if not self._remaining_round:
            self._remaining_round = list(self._lease_manager.all_balances())
        seen, self._remaining_round = self._remaining_round[:limit], self._remaining_round[limit:]
        return [
            balance
            for balance in seen
            if balance in self._lease_manager.balances_of(balance.budget_id)
        ]

    def _begin_next_period(self, balance: LeaseBalance, now: ClockReading) -> None:
        """Make the balance of the coming period, so that its first lease is here before that."""
        ends_at = balance.ends_at
        if ends_at is None or balance.forecast.is_idle(now.monotonic):
            return
        if 0 < (ends_at - now.wall).total_seconds() <= AHEAD_OF_PERIOD_SECONDS:
            self._lease_manager.recently_used[
                self._lease_manager.balance(balance.budget_id, ends_at)
            ] = None

    def _asks(self, now: float) -> list[LeaseAsk]:
        """Return the open asks whose turn it is: those that requests wait for come first."""
        ready = [balance for balance in self._open.values() if balance.refill.ask_after <= now]
        ready.sort(key=lambda balance: not balance.has_waiters)
        return [balance.refill.ask for balance in ready if balance.refill.ask is not None]

    def _page_size(self, page_max: int) -> int:
        return max(PAGE_MIN, int(page_max * self._share))

    def _apply_reply(self, request: LeaseRequest, reply: LeaseReply, now: float) -> None:
        """Take in what was answered; the rest goes to the end of its line."""
        self._lineage.observe(reply.lineage)
        for ask in request.asks:
            balance = self._open[ask.ask_id] = self._open.pop(ask.ask_id)
            balance.refill.retry_later(now)
        for answer in reply.answers:
            self._apply_answer(answer, now)
        self._apply_returns(request.returns, set(reply.returned), now)
        self._recall(reply.recalls, {back.lease_id for back in request.returns}, now)
        if self._has_more:
            self._lease_manager.shortage.set()

    def _apply_answer(self, answer: Answer, now: float) -> None:
        balance = self._open.get(answer.ask_id)
        if balance is None:
            return
        if isinstance(answer, LeaseDeferral):
            self.counts.deferred += 1
            balance.refill.defer()
            return
        del self._open[answer.ask_id]
        if isinstance(answer, LeaseDenial):
            balance.apply_refusal(answer, now)
        else:
            self._apply_grant(balance, answer, now)

    def _apply_grant(self, balance: LeaseBalance, answer: LeaseGrant, now: float) -> None:
        lease = balance.apply_grant(answer, now)
        self.leases[lease.lease_id] = lease
        self._write_to_journal(lease, answer)
        if lease.is_stopped:
            log.error("lease_of_another_period", lease_id=lease.lease_id, period=answer.period)
        elif lease.admits_until <= now:
            # Waking would only make the waiters ask again at once, until all money is leased.
            log.error("lease_expired_when_granted", lease_id=lease.lease_id)
        else:
            balance.wake()

    def _write_to_journal(self, lease: Lease, answer: LeaseGrant) -> None:
        now, terms = self._lease_manager.now(), None
        if not lease.is_stopped:
            terms = LeaseTerms(
                self._lineage.known,
                answer.period.timestamp(),
                noted_at=now.wall.timestamp(),
                admits_from=lease.admits_from + now.clock_offset,
                admits_until=lease.admits_until + now.clock_offset,
                clock_offset=now.clock_offset,
            )
            lease.is_in_force_on_disk = True
        self._journal.record_lease(lease.lease_id, lease.budget_id, lease.granted_nanos, terms)

    def _apply_returns(self, returns: tuple[LeaseReturn, ...], taken: set[str], now: float) -> None:
        closed: list[str] = []
        for back in returns:
            if back.lease_id not in taken:
                self._returns.retry_later(back, now)
                continue
            self._returns.acknowledge(back)
            if back.closed and self.leases.pop(back.lease_id, None) is not None:
                closed.append(back.lease_id)
        if closed:
            self._journal.forget_leases(closed)

    def _recall(self, lease_ids: Iterable[str], returned: set[str], now: float) -> None:
        for lease_id in lease_ids:
            lease = self.leases.get(lease_id)
            if lease is None and lease_id not in returned:
                # Granted to a life of this gateway that died before it heard of it.
                lease = self.leases[lease_id] = Lease(lease_id, "", 0, 0.0, 0.0)
            if lease is not None and not lease.is_stopped:
                self._return_recalled(lease, now)

    def _return_recalled(self, lease: Lease, now: float) -> None:
        """Return at once what a recalled lease has left."""
        lease.stop(self._returns.outbox)
        for balance in self._lease_manager.balances_of(lease.budget_id):
            if lease in balance.leases:
                balance.apply_recall(lease, now)
        self._lease_manager.shortage.set()

    def _pause_seconds(self) -> float:
        """Return how long nothing is to be said, at most until news are due."""
        now = self._lease_manager.now().monotonic
        balances = chain(self._open.values(), self._lease_manager.underfunded)
        waits = [
            balance.refill.ask_after - now for balance in balances if balance.refill.ask_after > now
        ]
        return min([POLL_SECONDS, *waits])
