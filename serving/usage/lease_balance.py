"""The leases of one budget in one period: what is left of them, and who waits for money."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from serving.contract.lease import LeaseAsk, LeaseDenial, LeaseGrant
from serving.usage.clock import ClockReading
from serving.usage.lease import Lease, LeasePortion, Outbox, Parts
from serving.usage.lease_refill import LeaseRefill, SpendForecast

REFUSAL_SECONDS = 0.5
"""A refusal is believed this long, so that a grant of credit works within 2 s."""
WAITERS_SEEN_MAX = 100
"""At most so many waiters are looked at when some money comes back."""


@dataclass(frozen=True, slots=True)
class LeaseRefusal:
    """Billing said no to a shortfall of `need_nanos`; believed until `until`. `held_nanos` may yet
    come back from requests under way in other gateways."""

    code: str
    need_nanos: int
    available_nanos: int
    recall_in_progress: bool
    until: float
    limit_nanos: int | None = None
    held_nanos: int = 0


class LeaseBalance:
    """Money of one budget and period in this gateway. `now` is monotonic seconds, except where
    it is a `ClockReading` of both clocks."""

    def __init__(
        self,
        budget_id: str,
        period: tuple[datetime, datetime | None],
        forecast: SpendForecast,
        outbox: Outbox,
        new_id: Callable[[], str],
    ) -> None:
        self.budget_id = budget_id
        self.starts_at, self.ends_at = period
        self.forecast = forecast
        self.leases: list[Lease] = []
        self.held_nanos = 0
        self.refill = LeaseRefill(budget_id, period, forecast, new_id)
        self._refusal: LeaseRefusal | None = None
        self._outbox = outbox
        self._needs: dict[asyncio.Future[None], int] = {}

    def covers(self, at: datetime) -> bool:
        """Tell whether a moment lies in the period."""
        return self.starts_at <= at and (self.ends_at is None or at < self.ends_at)

    def spendable(self, now: float) -> int:
        """Return what new requests could hold."""
        return sum(lease.spendable(now) for lease in self.leases)

    def is_unused(self, now: ClockReading) -> bool:
        """Whether nobody wants anything of it: no lease, ask, waiter, hold or recent use."""
        wanted = self.leases or self.refill.ask or self._needs or self.held_nanos
        return not wanted and (
            self.refill.is_over(now.wall) or self.forecast.is_idle(now.monotonic)
        )

    def try_reserve(self, nanos: int, now: float) -> Parts | None:
        """Reserve `nanos` over as few leases as it takes, or nothing and None."""
        parts: list[LeasePortion] = []
        missing = nanos
        for lease in self.leases:
            if missing == 0:
                break
            taken = min(missing, lease.spendable(now))
            if taken:
                parts.append(LeasePortion(lease, taken))
                missing -= taken
        if missing:
            return None
        for part in parts:
            part.lease.held_nanos += part.nanos
        self.held_nanos += nanos
        self.forecast.record_reservation(nanos, self.held_nanos, now)
        return tuple(parts)

    def release(self, parts: Parts) -> None:
        """Give back what a hold took here."""
        for part in parts:
            part.lease.release(part.nanos)
            self.held_nanos -= part.nanos

    def shrink(self, parts: Parts, nanos: int, now: float) -> Parts:
        """Give back what a hold took here beyond `nanos`, and return what is left of it; one part
        at least, so that whatever is charged has its lease."""
        kept: list[LeasePortion] = []
        for part in parts:
            left = min(part.nanos, nanos)
            nanos -= left
            if left or not kept:
                kept.append(LeasePortion(part.lease, left))
            self.held_nanos -= part.nanos - left
            part.lease.release(part.nanos - left)
        self.wake_fitting(now)
        return tuple(kept)

    def settle(self, parts: Parts, nanos: int, now: float) -> list[LeasePortion]:
        """Charge `nanos` to the leases of a hold, give the rest back, and return what was
        charged to which. Any excess over the hold is charged to its last lease."""
        charged: list[LeasePortion] = []
        left = nanos
        for part in parts:
            taken = left if part is parts[-1] else min(left, part.nanos)
            left -= taken
            if taken:
                part.lease.charge(taken)
                charged.append(LeasePortion(part.lease, taken))
        self.release(parts)
        self.forecast.record_charge(nanos, now)
        self.wake_fitting(now)
        return charged

    def refusal_for(self, nanos: int, now: float) -> LeaseRefusal | None:
        """Return the refusal in force for a request of `nanos`, if there is one."""
        refusal = self._refusal
        if refusal is None or now >= refusal.until:
            return None
        shortfall = nanos - self.spendable(now)
        return refusal if shortfall >= refusal.need_nanos else None

    def may_cover(self, nanos: int, refusal: LeaseRefusal, now: float) -> bool:
        """Tell whether there would be enough, were all that is held for requests under way given
        back: then who needs it waits, and is not refused."""
        held_nanos = self.held_nanos + refusal.held_nanos
        return self.spendable(now) + held_nanos + refusal.available_nanos >= nanos

    @property
    def has_waiters(self) -> bool:
        """Whether a request waits for money that is not here."""
        return any(not news.done() for news in self._needs)

    def add_waiter(self, waiter: asyncio.Future[None], nanos: int) -> None:
        """Count a request as needing `nanos`, and resolve `waiter` when it should look again."""
        self._needs[waiter] = nanos

    def remove_waiter(self, waiter: asyncio.Future[None]) -> None:
        """End what `add_waiter` began."""
        del self._needs[waiter]

    def wake(self) -> None:
        """Let all who wait look again."""
        for news in self._needs:
            if not news.done():
                news.set_result(None)

    def wake_fitting(self, now: float) -> None:
        """Let those look again for whom there is enough here now, the longest waiting first."""
        if not self._needs:
            return
        left = self.spendable(now)
        for news, nanos in islice(self._needs.items(), WAITERS_SEEN_MAX):
            if nanos <= left and not news.done():
                left -= nanos
                news.set_result(None)

    def next_ask(self, now: ClockReading) -> LeaseAsk | None:
        """Stop what no longer admits, and return the ask that is open or due."""
        for lease in self.refill.ended(now, self.leases):
            lease.stop(self._outbox)
            self.leases.remove(lease)
        needs = [nanos for news, nanos in self._needs.items() if not news.done()]
        refusal = self.refusal_for(min(needs), now.monotonic) if needs else None
        is_refused = refusal is not None and not refusal.recall_in_progress
        return self.refill.next_ask(now, self.leases, self.held_nanos, needs, is_refused=is_refused)

    def apply_recall(self, lease: Lease, now: float) -> None:
        """Drop a lease of this balance that was called back: its money is wanted elsewhere, so
        that nothing is fetched ahead for a while."""
        self.leases.remove(lease)
        self.refill.mark_scarce(now)

    def apply_grant(self, answer: LeaseGrant, now: float) -> Lease:
        """Take in the lease that the open ask brought; one of another period is stopped at once."""
        lease = self.refill.apply_grant(answer, now)
        self._refusal = None
        if answer.period == self.starts_at:
            self.leases.append(lease)
        else:
            lease.stop(self._outbox)
        return lease

    def apply_refusal(self, answer: LeaseDenial, now: float) -> None:
        """Remember a refusal for a moment, and let those who wait hear of it."""
        self._refusal = LeaseRefusal(
            answer.code,
            self.refill.apply_refusal(answer, now),
            answer.available_nanos,
            answer.recall_in_progress,
            until=now + REFUSAL_SECONDS,
            limit_nanos=answer.limit_nanos,
            held_nanos=answer.held_nanos,
        )
        self.wake()
