"""The leases of one budget in one period: what is left of them, who waits for money, what to ask
for."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

import msgspec

from serving.contract.lease import LeaseAsk, LeaseDenial, LeaseGrant
from serving.contract.money import NANOS_MAX
from serving.usage.clock import ClockReading
from serving.usage.lease import Lease, LeasePortion, Outbox, Parts
from serving.usage.spend_forecast import AHEAD_SECONDS, SpendForecast

WANT_NANOS_MIN = 10_000_000
"""One cent: the least a gateway asks ahead while a budget is in use."""
REFUSAL_SECONDS = 0.5
"""A refusal is believed this long, so that a grant of credit works within 2 s."""
AGAIN_SECONDS = 0.05
"""How soon an ask is sent again that was not answered, or deferred."""
RECALL_SECONDS = 0.1
"""How soon billing is asked again while it calls money back from other gateways."""
SCARCE_SECONDS = 30.0
"""How long nothing is fetched ahead after billing gave less than was wanted."""
WANT_LESS = 4
WAITERS_SEEN_MAX = 100
"""How many of those who wait are looked at when some money comes back."""
STRAGGLER_SECONDS = 30.0
"""How long after the period's end its lease admits requests that were received before it."""
STRAGGLERS = timedelta(seconds=STRAGGLER_SECONDS)
EARLY_SECONDS = 2.0
"""How far the two clocks may drift apart while a lease waits for its period to begin."""
TICK = timedelta(milliseconds=1)


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
        self.ask: LeaseAsk | None = None
        self.ask_after = 0.0
        """When the open or next ask may be sent, once billing has answered one without money."""
        self.held_nanos = 0
        self._asked = ClockReading(0.0, self.starts_at)
        self._refusal: LeaseRefusal | None = None
        self._scarce_until = 0.0
        self._want_max = NANOS_MAX
        """Of asks while money is scarce."""
        self._outbox = outbox
        self._new_id = new_id
        self._needs: dict[asyncio.Future[None], int] = {}

    def covers(self, at: datetime) -> bool:
        """Tell whether a moment lies in the period."""
        return self.starts_at <= at and (self.ends_at is None or at < self.ends_at)

    def spendable(self, now: float) -> int:
        """Return what new requests could hold."""
        return sum(lease.spendable(now) for lease in self.leases)

    def is_unused(self, now: ClockReading) -> bool:
        """Whether nobody wants anything of it: no lease, ask, waiter, hold or recent use."""
        wanted = self.leases or self.ask or self._needs or self.held_nanos
        return not wanted and (self._is_over(now.wall) or self.forecast.is_idle(now.monotonic))

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
        charged to which. What exceeds the hold is charged to its last lease."""
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
        """Stop what no longer admits, and return the ask that is open or due.

        An ask stays the same one until it is answered, so that a lost answer grants nothing twice.
        """
        self._stop_ended(now)
        if self.ask is None and now.monotonic >= self.ask_after:
            self.ask = self._make_ask(now)
        return self.ask

    def _make_ask(self, now: ClockReading) -> LeaseAsk | None:
        if self.ends_at is not None and now.wall >= self.ends_at + STRAGGLERS:
            return None
        ahead = max(self.forecast.ahead_nanos(now.monotonic), WANT_NANOS_MIN)
        needs = [nanos for news, nanos in self._needs.items() if not news.done()]
        if needs:
            least = min(needs)
            refusal = self.refusal_for(least, now.monotonic)
            if refusal is not None and not refusal.recall_in_progress:
                return None
            shortfall = max(1, least - self.spendable(now.monotonic))
            want = max(ahead, sum(needs))
            if now.monotonic < self._scarce_until:
                want = min(want, self._want_max)
            return self._ask(shortfall, max(shortfall, want), now)
        if self._wants_renewal(now):
            need = max(1, self.forecast.largest_hold_nanos(now.monotonic))
            return self._ask(need, max(need, ahead), now)
        return None

    def _ask(self, need_nanos: int, want_nanos: int, now: ClockReading) -> LeaseAsk:
        """Ask for the period: from now, or from its start where that is ahead."""
        at = max(now.wall, self.starts_at)
        if self.ends_at is not None:
            at = min(at, self.ends_at - TICK)
        self._asked = now
        return LeaseAsk(self._new_id(), self.budget_id, need_nanos, want_nanos, at)

    def _wants_renewal(self, now: ClockReading) -> bool:
        """Tell whether, were control to go away now, less than ten minutes' spend would be here
        for the next ten minutes."""
        if self._is_over(now.wall) or now.monotonic < self._scarce_until:
            return False
        if self.forecast.is_idle(now.monotonic):
            return False
        lasting = self._lasting(now)
        unspent = self.held_nanos + sum(lease.unspent_nanos for lease in lasting)
        return not lasting or unspent < self.forecast.ahead_nanos(now.monotonic)

    def _lasting(self, now: ClockReading) -> list[Lease]:
        """Return the leases that admit for ten minutes from now, or from the period's start, or
        to the period's end."""
        until = max(now.monotonic, now.on_monotonic(self.starts_at)) + AHEAD_SECONDS
        if self.ends_at is not None:
            until = min(until, now.on_monotonic(self.ends_at))
        return [lease for lease in self.leases if lease.admits_until >= until]

    def _stop_ended(self, now: ClockReading) -> None:
        """Stop the leases that are over, and those near their end that have been renewed."""
        if not self.leases:
            return
        ended = [lease for lease in self.leases if now.monotonic >= lease.admits_until]
        if not self._is_over(now.wall):
            lasting = self._lasting(now)
            unspent = sum(lease.unspent_nanos for lease in lasting)
            if len(lasting) < len(self.leases) and unspent >= self._kept_ahead(now.monotonic):
                ended = [lease for lease in self.leases if lease not in lasting]
        for lease in ended:
            lease.stop(self._outbox)
            self.leases.remove(lease)

    def _kept_ahead(self, now: float) -> int:
        return max(self.forecast.ahead_nanos(now), self.forecast.largest_hold_nanos(now), 1)

    def apply_recall(self, lease: Lease, now: float) -> None:
        """Drop a lease of this balance that was called back: its money is wanted elsewhere, so
        that nothing is fetched ahead for a while."""
        self.leases.remove(lease)
        self._note_scarcity(now)

    def retry_later(self, now: float) -> None:
        """Send the open ask again after a short pause, unless it is answered by then."""
        self.ask_after = now + AGAIN_SECONDS

    def defer(self) -> None:
        """Note that the budget was busy: the ask will be waited for when it is sent again."""
        if self.ask is not None:
            self.ask = msgspec.structs.replace(self.ask, deferred=True)

    def apply_grant(self, answer: LeaseGrant, now: float) -> Lease:
        """Take in the lease that the open ask brought; one of another period is stopped at once."""
        ask = self._close_ask()
        self._refusal = None
        if answer.granted_nanos < ask.want_nanos:
            self._note_scarcity(now, want_max=ask.want_nanos // WANT_LESS)
        until = self._asked.on_monotonic(answer.admits_until)
        if answer.admits_until == answer.period_ends_at:
            until += STRAGGLER_SECONDS
        lease = Lease(
            answer.lease_id,
            self.budget_id,
            answer.granted_nanos,
            admits_from=self._asked.on_monotonic(answer.admits_from) - EARLY_SECONDS,
            admits_until=until,
        )
        if answer.period == self.starts_at:
            self.leases.append(lease)
        else:
            lease.stop(self._outbox)
        return lease

    def apply_refusal(self, answer: LeaseDenial, now: float) -> None:
        """Remember a refusal for a moment, and let those who wait hear of it."""
        need_nanos = self._close_ask().need_nanos
        if answer.recall_in_progress:
            self.ask_after = now + RECALL_SECONDS
        self._note_scarcity(now)
        self._refusal = LeaseRefusal(
            answer.code,
            need_nanos,
            answer.available_nanos,
            answer.recall_in_progress,
            until=now + REFUSAL_SECONDS,
            limit_nanos=answer.limit_nanos,
            held_nanos=answer.held_nanos,
        )
        self.wake()

    def _note_scarcity(self, now: float, *, want_max: int = NANOS_MAX) -> None:
        """Ask only for who waits, and for less where less was given: billing gives the more the
        less is wanted of what is left, so that many who wait are served in few calls."""
        self._scarce_until = now + SCARCE_SECONDS
        self._want_max = want_max

    def _close_ask(self) -> LeaseAsk:
        """End the open ask and return it."""
        ask = self.ask
        if ask is None:
            raise RuntimeError("only an open ask is answered")
        self.ask, self.ask_after = None, 0.0
        return ask

    def _is_over(self, wall: datetime) -> bool:
        return self.ends_at is not None and wall >= self.ends_at
