"""One lease as its gateway sees it: what is granted, held and charged, and when it goes back."""

from dataclasses import dataclass

from serving.contract.lease import Return

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
    """What billing took as the most that this lease may still settle in all."""
    outbox: Outbox | None = None
    is_in_force_on_disk: bool = False
    """Whether a next life would go on with it: billing is told of no end before the disk is."""

    @property
    def keep_nanos(self) -> int:
        """The most this lease will ever settle if it admits nothing more."""
        return self.charged_nanos + self.held_nanos

    @property
    def unspent_nanos(self) -> int:
        """What is neither charged nor held."""
        return max(0, self.granted_nanos - self.charged_nanos - self.held_nanos)

    @property
    def is_stopped(self) -> bool:
        """Whether it admits nothing more, for good."""
        return self.outbox is not None

    def spendable(self, now: float) -> int:
        """Return what a new request could hold."""
        admits = self.outbox is None and self.admits_from <= now < self.admits_until
        return self.unspent_nanos if admits else 0

    def release(self, nanos: int) -> None:
        """Give back what one request held."""
        self.held_nanos -= nanos
        self._tell()

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
        self._tell()

    def stop(self, outbox: Outbox) -> None:
        """Admit nothing more, and let billing know by `outbox`."""
        if self.outbox is None:
            self.outbox = outbox
            self._tell()

    def abandon(self) -> None:
        """Admit nothing more, and never tell: billing's database knows no such lease any more."""
        self.outbox = {}

    def due_return(self) -> Return | None:
        """Return what billing should be told now, if anything."""
        closed = self.held_nanos == 0 and self.unacknowledged == 0
        keep_nanos = min(self.keep_nanos, self.granted_nanos)
        if self.kept_nanos is not None:
            # What was given back once may be another's by now; a later charge is a fact anyway.
            keep_nanos = min(keep_nanos, self.kept_nanos)
            if not closed and keep_nanos == self.kept_nanos:
                return None
        return Return(self.lease_id, keep_nanos, closed)

    def _tell(self) -> None:
        if self.outbox is not None:
            self.outbox.setdefault(self.lease_id, self)


@dataclass(frozen=True, slots=True)
class Part:
    """What a hold takes from one lease, or charges to it."""

    lease: Lease
    nanos: int


Parts = tuple[Part, ...]
