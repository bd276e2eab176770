"""The asks for one budget in one period: its recent use, the money to have at hand, and the open
ask.
"""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from serving.contract.lease import LeaseAsk, LeaseDenial, LeaseGrant
from serving.contract.money import NANOS_MAX
from serving.usage.clock import ClockReading
from serving.usage.lease import Lease

SPEND_WINDOW_SECONDS = 60
BUCKET_SECONDS = 5
AHEAD_SECONDS = 600
"""A gateway keeps ten minutes' spend, so that it goes on that long without control."""
IDLE_SECONDS = 300.0
"""A budget that nobody held on for this long is idle: its leases run out and go back."""


class SpendForecast:
    """Nanos charged in the last minute, and the most that was held in the last minutes.

    `now` is monotonic seconds throughout; charges are kept per five seconds, holds per half of
    `IDLE_SECONDS`, so that both cost the same however many requests there are.
    """

    __slots__ = ("_buckets", "_charged", "_epoch", "_held", "_held_before", "used_at")

    def __init__(self) -> None:
        self.used_at = float("-inf")
        self._buckets: deque[tuple[int, int]] = deque()
        self._charged = 0
        self._epoch = 0
        self._held = (0, 0)
        self._held_before = (0, 0)

    def is_idle(self, now: float) -> bool:
        """Whether nobody has held on the budget lately."""
        return now - self.used_at >= IDLE_SECONDS

    def record_reservation(self, nanos: int, held_nanos: int, now: float) -> None:
        """Count a hold of `nanos`, after which `held_nanos` are held at once."""
        self.used_at = now
        self._advance(now)
        largest, most = self._held
        self._held = (max(largest, nanos), max(most, held_nanos))

    def record_charge(self, nanos: int, now: float) -> None:
        """Count what a request really took."""
        bucket, before = int(now) // BUCKET_SECONDS, 0
        if self._buckets and self._buckets[-1][0] == bucket:
            before = self._buckets.pop()[1]
        self._buckets.append((bucket, before + nanos))
        self._charged += nanos

    def ahead_nanos(self, now: float) -> int:
        """Return ten minutes' spend and what is held at once: the money to have at hand.

        A minute begun counts whole, so that what is spent evenly is never taken for less.

        Worked example: 3,000 nanos charged in the last minute and at most 500 held at once are
        3,000 * 10 + 500 = 30,500 nanos.
        """
        self._advance(now)
        oldest = int(now - SPEND_WINDOW_SECONDS) // BUCKET_SECONDS
        while self._buckets and self._buckets[0][0] < oldest:
            self._charged -= self._buckets.popleft()[1]
        held_at_once = max(self._held[1], self._held_before[1])
        return self._charged * AHEAD_SECONDS // SPEND_WINDOW_SECONDS + held_at_once

    def largest_hold_nanos(self, now: float) -> int:
        """Return the largest single hold of the last minutes."""
        self._advance(now)
        return max(self._held[0], self._held_before[0])

    def _advance(self, now: float) -> None:
        epoch = int(now / (IDLE_SECONDS / 2))
        if epoch == self._epoch:
            return
        self._held_before = self._held if epoch == self._epoch + 1 else (0, 0)
        self._held, self._epoch = (0, 0), epoch


WANT_NANOS_MIN = 10_000_000
"""One cent: the least a gateway asks ahead while a budget is in use."""
AGAIN_SECONDS = 0.05
"""An ask that was not answered, or deferred, is sent again after this."""
RECALL_SECONDS = 0.1
"""Billing is asked again after this while it calls money back from other gateways."""
SCARCE_SECONDS = 30.0
"""Nothing is fetched ahead for this long after billing gave less than was wanted."""
WANT_LESS = 4
STRAGGLER_SECONDS = 30.0
"""For this long after the period's end its lease admits requests that were received before it."""
STRAGGLERS = timedelta(seconds=STRAGGLER_SECONDS)
EARLY_SECONDS = 2.0
"""The two clocks may drift apart by this while a lease waits for its period to begin."""
TICK = timedelta(milliseconds=1)


class LeaseRefill:
    """The one ask of a budget and period that may be open, and when the next is due.

    It reads the leases of its balance and changes none. `now` is monotonic seconds, except where
    it is a `ClockReading` of both clocks.
    """

    def __init__(
        self,
        budget_id: str,
        period: tuple[datetime, datetime | None],
        forecast: SpendForecast,
        new_id: Callable[[], str],
    ) -> None:
        self.ask: LeaseAsk | None = None
        self.ask_after = 0.0
        """When the open or next ask may be sent, once billing has answered one without money."""
        self._budget_id = budget_id
        self.starts_at, self.ends_at = period
        self._forecast = forecast
        self._asked = ClockReading(0.0, self.starts_at)
        self._scarce_until = 0.0
        self._want_max = NANOS_MAX
        """The most that an ask wants while money is scarce."""
        self._new_id = new_id

    def next_ask(
        self,
        now: ClockReading,
        leases: Sequence[Lease],
        held_nanos: int,
        needs: Sequence[int],
        *,
        is_refused: bool,
    ) -> LeaseAsk | None:
        """Return the ask that is open or due; while billing's refusal of the least of `needs` is
        believed (`is_refused`), none becomes due.

        An ask stays the same one until it is answered, so that a lost answer grants nothing twice.
        """
        if self.ask is None and now.monotonic >= self.ask_after and not is_refused:
            self.ask = self._make_ask(now, leases, held_nanos, needs)
        return self.ask

    def _make_ask(
        self, now: ClockReading, leases: Sequence[Lease], held_nanos: int, needs: Sequence[int]
    ) -> LeaseAsk | None:
        if self.ends_at is not None and now.wall >= self.ends_at + STRAGGLERS:
            return None
        ahead = max(self._forecast.ahead_nanos(now.monotonic), WANT_NANOS_MIN)
        if needs:
            spendable = sum(lease.spendable(now.monotonic) for lease in leases)
            shortfall = max(1, min(needs) - spendable)
            want = max(ahead, sum(needs))
            if now.monotonic < self._scarce_until:
                want = min(want, self._want_max)
            return self._ask(shortfall, max(shortfall, want), now)
        if self._wants_renewal(now, leases, held_nanos):
            need = max(1, self._forecast.largest_hold_nanos(now.monotonic))
            return self._ask(need, max(need, ahead), now)
        return None

    def _ask(self, need_nanos: int, want_nanos: int, now: ClockReading) -> LeaseAsk:
        """Ask for the period: from now, or from its start where that is ahead."""
        at = max(now.wall, self.starts_at)
        if self.ends_at is not None:
            at = min(at, self.ends_at - TICK)
        self._asked = now
        return LeaseAsk(self._new_id(), self._budget_id, need_nanos, want_nanos, at)

    def _wants_renewal(self, now: ClockReading, leases: Sequence[Lease], held_nanos: int) -> bool:
        """Tell whether, were control to go away now, less than ten minutes' spend would be here
        for the next ten minutes."""
        if self.is_over(now.wall) or now.monotonic < self._scarce_until:
            return False
        if self._forecast.is_idle(now.monotonic):
            return False
        lasting = self._lasting(now, leases)
        unspent = held_nanos + sum(lease.unspent_nanos for lease in lasting)
        return not lasting or unspent < self._forecast.ahead_nanos(now.monotonic)

    def _lasting(self, now: ClockReading, leases: Sequence[Lease]) -> list[Lease]:
        """Return the leases that admit for ten minutes from now, or from the period's start, or
        to the period's end."""
        until = max(now.monotonic, now.on_monotonic(self.starts_at)) + AHEAD_SECONDS
        if self.ends_at is not None:
            until = min(until, now.on_monotonic(self.ends_at))
        return [lease for lease in leases if lease.admits_until >= until]

    def ended(self, now: ClockReading, leases: Sequence[Lease]) -> list[Lease]:
        """Return the leases that are over, and those near their end that have been renewed."""
        if not leases:
            return []
        if not self.is_over(now.wall):
            lasting = self._lasting(now, leases)
            unspent = sum(lease.unspent_nanos for lease in lasting)
            if len(lasting) < len(leases) and unspent >= self._kept_ahead(now.monotonic):
                return [lease for lease in leases if lease not in lasting]
        return [lease for lease in leases if now.monotonic >= lease.admits_until]

    def _kept_ahead(self, now: float) -> int:
        return max(self._forecast.ahead_nanos(now), self._forecast.largest_hold_nanos(now), 1)

    def retry_later(self, now: float) -> None:
        """Send the open ask again after a short pause, unless it is answered by then."""
        self.ask_after = now + AGAIN_SECONDS

    def defer(self) -> None:
        """Note that the budget was busy: the ask will be waited for when it is sent again."""
        if self.ask is not None:
            self.ask = msgspec.structs.replace(self.ask, deferred=True)

    def apply_grant(self, answer: LeaseGrant, now: float) -> Lease:
        """End the open ask, and return the lease that it brought."""
        ask = self._close_ask()
        if answer.granted_nanos < ask.want_nanos:
            self.mark_scarce(now, want_max=ask.want_nanos // WANT_LESS)
        until = self._asked.on_monotonic(answer.admits_until)
        if answer.admits_until == answer.period_ends_at:
            until += STRAGGLER_SECONDS
        return Lease(
            answer.lease_id,
            self._budget_id,
            answer.granted_nanos,
            admits_from=self._asked.on_monotonic(answer.admits_from) - EARLY_SECONDS,
            admits_until=until,
        )

    def apply_refusal(self, answer: LeaseDenial, now: float) -> int:
        """End the open ask, and return the nanos that it needed."""
        ask = self._close_ask()
        if answer.recall_in_progress:
            self.ask_after = now + RECALL_SECONDS
        self.mark_scarce(now)
        return ask.need_nanos

    def mark_scarce(self, now: float, *, want_max: int = NANOS_MAX) -> None:
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

    def is_over(self, wall: datetime) -> bool:
        """Tell whether the period has ended."""
        return self.ends_at is not None and wall >= self.ends_at
