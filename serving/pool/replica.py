"""A replica as the gateway uses it: the feed's word on it, and what calls to it showed."""

from dataclasses import dataclass, field

from serving.contract.replica import ReplicaRecord
from serving.pool.loss import Unanswered
from serving.pool.prefixes import Seen

EJECT_AFTER_INCIDENTS = 2
EJECT_SECONDS = 2.0
EJECT_SECONDS_MAX = 30.0
SLOW_SECONDS = 10.0
SLOW_SECONDS_MAX = 300.0
SLOW_FORGOTTEN_SECONDS = 600.0
"""One that is found slow again only after so long is put out no longer than the first time."""


@dataclass(slots=True, eq=False)
class Replica:
    """`in_flight` slots are taken, of the `share` that is this gateway's; `now` is monotonic
    seconds throughout.

    An incident is one break, whatever number of requests it hits. Incidents in a row eject the
    replica, unless all of them came with requests of one organization that fared no better
    elsewhere: then the requests are suspected first. One that is far slower than its peers
    (`outliers.py`) is put out too.
    """

    record: ReplicaRecord
    share: int
    in_flight: int = 0
    may_exceed: bool = True
    """Whether a request of several choices may begin where fewer slots are free."""
    unread: int = 0
    """Blocks of prompts that it was given and has not answered;"""
    unread_elsewhere: int = 0
    """and those that other gateways gave it, as far as they told."""
    strain: float = 0.0
    """How full its engine is, by its own word: requests that wait in it, and the part of its KV
    cache that is in use."""
    incidents: int = 0
    in_a_row: int = 0
    is_at_fault: bool = False
    """Whether something since its last success can only be the replica's own fault."""
    ejected_until: float = 0.0
    slow_at: float = 0.0
    slow_until: float = 0.0
    slow_in_a_row: int = 0
    seen: Seen = field(default_factory=Seen)
    """What its prefix cache probably holds."""
    unanswered: set[Unanswered] = field(default_factory=set)
    """Requests that wait for their first token."""
    loads_since: float = 0.0
    """When it was first told of, or began to load."""
    _organizations: set[str] = field(default_factory=set)

    @property
    def free(self) -> int:
        """How many slots more may be taken."""
        return max(0, self.share - self.in_flight)

    @property
    def has_room(self) -> bool:
        """Whether a request may begin. One of several choices begins at the first free slot where
        it `may_exceed` the share, until as many requests have ended."""
        return self.in_flight < self.share

    @property
    def is_ready(self) -> bool:
        """Whether the feed says that it may be given work."""
        return self.record.state == "ready"

    @property
    def is_coming(self) -> bool:
        """Whether it is not ready yet, and should be."""
        return self.record.state in ("pending", "loading", "canary")

    @property
    def is_asleep(self) -> bool:
        """Whether it stands for those of a deployment that sleeps."""
        return self.record.state == "asleep"

    def ready_in_seconds(self, now: float) -> float | None:
        """Return in how many seconds it should be ready; None where nobody knows."""
        seconds = self.record.load_seconds
        if seconds is None or self.record.state not in ("loading", "canary"):
            return seconds
        return max(0.0, self.loads_since + seconds - now)

    @property
    def is_lost(self) -> bool:
        """Whether nothing that it was given will be answered, by the feed."""
        return self.record.state in ("failed", "stopped")

    @property
    def is_on_trial(self) -> bool:
        """Whether it was ejected and has not worked since, or not as fast as others: one request
        at a time tries it."""
        return self.ejected_until > 0.0 or self.slow_until > 0.0

    def is_usable(self, now: float) -> bool:
        """Whether it may be given work: ready by the feed, and not ejected by us."""
        if not self.is_ready or now < self.ejected_until or now < self.slow_until:
            return False
        return not self.is_on_trial or self.in_flight == 0

    def lose_unanswered(self) -> None:
        """End the requests that it has not answered: another replica may."""
        for one in list(self.unanswered):
            one.lose()

    def note_success(self) -> None:
        """It made a token: whatever was held against it is forgotten."""
        self.in_a_row, self.is_at_fault, self.ejected_until = 0, False, 0.0
        self._organizations.clear()

    def note_incident(self, organization_id: str, now: float, *, is_at_fault: bool) -> float:
        """It broke under an organization's request; return for how many seconds it is out."""
        self.incidents += 1
        self.in_a_row += 1
        self.is_at_fault |= is_at_fault
        self._organizations.add(organization_id)
        return self.eject(now)

    def eject(self, now: float) -> float:
        """Put it out if enough is held against it; return for how many seconds."""
        repeats = self.in_a_row - EJECT_AFTER_INCIDENTS
        if repeats < 0 or not (self.is_at_fault or len(self._organizations) > 1):
            return 0.0
        pause = min(EJECT_SECONDS_MAX, EJECT_SECONDS * 2 ** min(repeats, 10))
        self.ejected_until = now + pause
        return pause

    def eject_slow(self, now: float) -> float:
        """Put it out for being slow; return for how many seconds."""
        if now - self.slow_at > SLOW_FORGOTTEN_SECONDS:
            self.slow_in_a_row = 0
        pause = min(SLOW_SECONDS_MAX, SLOW_SECONDS * 2 ** min(self.slow_in_a_row, 10))
        self.slow_in_a_row += 1
        self.slow_at, self.slow_until = now, now + pause
        return pause
