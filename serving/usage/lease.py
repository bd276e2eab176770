"""One lease as its gateway sees it: what is granted, held and charged, and when it goes back."""

from dataclasses import dataclass

from serving.contract.lease import Return


@dataclass(slots=True, eq=False)
class Lease:
    """`charged + held <= granted` always; `admits_until` is on the monotonic clock, in seconds.

    A stopped lease admits nothing more. It is returned as soon as it stops, so that what is
    neither charged nor held is free again, and closed when billing has all its events.
    """

    lease_id: str
    budget_id: str
    granted_nanos: int
    admits_until: float
    charged_nanos: int = 0
    held_nanos: int = 0
    unacknowledged: int = 0
    stopped: bool = False
    kept_nanos: int | None = None
    """What billing was last told that this lease may still settle in all."""

    @property
    def keep_nanos(self) -> int:
        """The most this lease will ever settle if it admits nothing more."""
        return self.charged_nanos + self.held_nanos

    def admits(self, now: float) -> bool:
        """Tell whether new requests may hold on it."""
        return not self.stopped and now < self.admits_until

    def spendable(self, now: float) -> int:
        """Return what a new request could hold."""
        return max(0, self.granted_nanos - self.keep_nanos) if self.admits(now) else 0

    def due_return(self, now: float) -> Return | None:
        """Return what billing should be told now, if anything; stops an expired lease."""
        if now >= self.admits_until:
            self.stopped = True
        if not self.stopped:
            return None
        closed = self.held_nanos == 0 and self.unacknowledged == 0
        if not closed and self.kept_nanos is not None and self.keep_nanos >= self.kept_nanos:
            return None
        return Return(self.lease_id, self.keep_nanos, closed)
