"""A replica as the gateway uses it: the feed's word on it, and what calls to it showed."""

from dataclasses import dataclass

from serving.contract.replica import ReplicaRecord

EJECT_AFTER_FAILURES = 2
EJECT_SECONDS = 2.0
EJECT_SECONDS_MAX = 30.0


@dataclass(slots=True, eq=False)
class Replica:
    """`in_flight` requests are being worked on; `now` is monotonic seconds throughout."""

    record: ReplicaRecord
    in_flight: int = 0
    failures_in_a_row: int = 0
    ejected_until: float = 0.0

    @property
    def has_slot(self) -> bool:
        """Whether one more request fits."""
        return self.in_flight < self.record.slots

    def is_usable(self, now: float) -> bool:
        """Whether it may be given work: ready by the feed, and not ejected by us.

        An ejected replica whose time is over gets one request as its canary.
        """
        if self.record.state != "ready" or now < self.ejected_until:
            return False
        on_trial = self.failures_in_a_row >= EJECT_AFTER_FAILURES
        return not on_trial or self.in_flight == 0

    def note_success(self) -> None:
        """It answered: whatever was held against it is forgotten."""
        self.failures_in_a_row = 0

    def note_failure(self, now: float) -> None:
        """It could not be reached, answered 5xx or broke: out for a while when it repeats."""
        self.failures_in_a_row += 1
        repeats = self.failures_in_a_row - EJECT_AFTER_FAILURES
        if repeats >= 0:
            pause = min(EJECT_SECONDS_MAX, EJECT_SECONDS * 2 ** min(repeats, 10))
            self.ejected_until = now + pause
