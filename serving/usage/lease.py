"""One lease as its gateway sees it: what is granted, held and charged, when it goes back, and
whether the gateway adopts it when it starts again."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from serving.contract.budget import period_end, period_start
from serving.contract.lease import LeaseReturn
from serving.usage.clock import ClockReading

Outbox = dict[str, "Lease"]
"""Leases of which billing should hear, by id, in the order in which it should."""


@dataclass(slots=True, eq=False)
class Lease:
    """`charged + held <= granted` always; times are seconds of the monotonic clock.

    A stopped lease has an outbox, admits nothing more, and puts itself there whenever billing
    should hear of it: as soon as it stops, so that what is neither charged nor held is free
    again; when less is kept; and to be closed when billing has all its events.
    """

    lease_id: str
    budget_id: str
    granted_nanos: int
    admits_from: float
    admits_until: float
    charged_nanos: int = 0
    held_nanos: int = 0
    unacknowledged: int = 0
    kept_nanos: int | None = None
    """The most that this lease may still settle in all, as billing took it."""
    outbox: Outbox | None = None
    is_in_force_on_disk: bool = False
    """Whether a next life would go on with it: billing is told of no end before the disk is."""

    @property
    def keep_nanos(self) -> int:
        """The most this lease will ever settle if it admits nothing more."""
        return self.charged_nanos + self.held_nanos

    @property
    def unspent_nanos(self) -> int:
        """The nanos that are neither charged nor held."""
        return max(0, self.granted_nanos - self.charged_nanos - self.held_nanos)

    @property
    def is_stopped(self) -> bool:
        """Whether it admits nothing more, for good."""
        return self.outbox is not None

    def spendable(self, now: float) -> int:
        """Return what a new request could hold."""
        if self.outbox is None and self.admits_from <= now < self.admits_until:
            return max(0, self.granted_nanos - self.charged_nanos - self.held_nanos)
        return 0

    def release(self, nanos: int) -> None:
        """Give back what one request held."""
        self.held_nanos -= nanos
        self._enqueue()

    def charge(self, nanos: int) -> None:
        """Take what one request cost; its event waits for billing's acknowledgement."""
        self.charged_nanos += nanos
        self.unacknowledged += 1

    def revoke(self, nanos: int) -> None:
        """Undo a charge whose event could not be made durable."""
        self.charged_nanos -= nanos
        self.acknowledge()

    def acknowledge(self) -> None:
        """Hear that billing has one event that charges this lease."""
        self.unacknowledged -= 1
        self._enqueue()

    def stop(self, outbox: Outbox) -> None:
        """Admit nothing more, and let billing know by `outbox`."""
        if self.outbox is None:
            self.outbox = outbox
            self._enqueue()

    def abandon(self) -> None:
        """Admit nothing more, and never tell: billing's database knows no such lease any more."""
        self.outbox = {}

    def due_return(self) -> LeaseReturn | None:
        """Return what billing should be told now, if anything."""
        closed = self.held_nanos == 0 and self.unacknowledged == 0
        keep_nanos = min(self.keep_nanos, self.granted_nanos)
        if self.kept_nanos is not None:
            # Nanos given back once may be another's by now; a later charge is a fact anyway.
            keep_nanos = min(keep_nanos, self.kept_nanos)
            if not closed and keep_nanos == self.kept_nanos:
                return None
        return LeaseReturn(self.lease_id, keep_nanos, closed)

    def _enqueue(self) -> None:
        if self.outbox is not None:
            self.outbox.setdefault(self.lease_id, self)


CLOCK_STEP_SECONDS = 1.0
"""A smaller difference of two clock offsets is no step of the wall clock: a process may be paused
between its readings of the two clocks. Such a step prolongs no lease either, since the earlier of
the two expiries counts."""
ReturnReason = Literal["not_in_force", "clock_set_back", "other_lineage", "other_period", "expired"]
"""Why a gateway returns a lease of an earlier process instead of adopting it."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The database that granted a lease, the period of its budget, and when it admits.

    Times are seconds since 1970 by the gateway's clock. `clock_offset` is by how many seconds that
    clock was ahead of the monotonic clock at `noted_at`. `lost_nanos` is the worst case of requests
    that earlier processes left under way.
    """

    lineage: str
    period_at: float
    noted_at: float
    admits_from: float
    admits_until: float
    clock_offset: float
    lost_nanos: int = 0

    def on_monotonic(self, at: float, now: ClockReading) -> float:
        """Return a wall time in monotonic seconds: the earlier of what the clock offsets of then
        and of now say."""
        return at - max(self.clock_offset, now.clock_offset)

    def return_reason(self, budget_id: str, lineage: str, now: ClockReading) -> ReturnReason | None:
        """Return why the lease is not adopted now, while billing's database is that of `lineage`;
        None where it is."""
        if not lineage or self.lineage != lineage:
            return "other_lineage"
        starts_at = period_start(budget_id, now.wall)
        ends_at = period_end(budget_id, starts_at)
        if self.period_at not in {at.timestamp() for at in (starts_at, ends_at) if at is not None}:
            return "other_period"
        if now.monotonic >= self.on_monotonic(self.admits_until, now):
            return "expired"
        return None


@dataclass(frozen=True, slots=True)
class JournaledLease:
    """A lease as the journal remembers it. One without `terms` is not in force and only goes back:
    its return may have been sent, or its records are in doubt. `granted_nanos` is 0 where only
    events are left of it: then it is closed once billing has those, and nothing is said before."""

    lease_id: str
    budget_id: str
    granted_nanos: int
    charged_nanos: int
    unacknowledged: int
    terms: LeaseTerms | None = None


def is_clock_set_back(known: Iterable[JournaledLease], latest_at: float, now: ClockReading) -> bool:
    """Whether the wall clock was set back since anything in the journal was written: how long ago
    that was, nobody knows. `latest_at` is the latest time in it beside those of leases."""
    return latest_at > now.wall.timestamp() or any(
        lease.terms.noted_at > now.wall.timestamp()
        or lease.terms.clock_offset - now.clock_offset > CLOCK_STEP_SECONDS
        for lease in known
        if lease.terms is not None
    )


class LeasePortion(msgspec.Struct, frozen=True):
    """The nanos that a hold takes from one lease, or charges to it."""

    lease: Lease
    nanos: int


Parts = tuple[LeasePortion, ...]
