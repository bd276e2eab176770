"""Requests that break engines: suspected before the engines are, by who asks for what.

Never by content: a fingerprint is an organization and a class of features.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

QUARANTINE_AFTER_INCIDENTS = 2
QUARANTINE_SECONDS = 10.0
QUARANTINE_SECONDS_MAX = 600.0
FORGET_SECONDS = 600.0
FINGERPRINTS_MAX = 10_000


class Fingerprint(NamedTuple):
    """Whose request, and of what kind."""

    organization_id: str
    feature: str


@dataclass(slots=True)
class Suspicion:
    """What is held against one fingerprint."""

    incidents: int = 0
    last_at: float = 0.0
    until: float = 0.0
    replica_ids: set[str] = field(default_factory=set)


class Suspicions:
    """Of one deployment. Only what broke an engine is remembered; `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: dict[Fingerprint, Suspicion] = {}

    def quarantined_seconds(self, fingerprint: Fingerprint) -> float:
        """Return for how much longer such requests are refused; 0 when they are not."""
        held = self._held.get(fingerprint)
        return 0.0 if held is None else max(0.0, held.until - self._clock())

    def is_suspected(self, fingerprint: Fingerprint) -> bool:
        """Tell whether anything is held against such requests."""
        return fingerprint in self._held

    def note_incident(self, fingerprint: Fingerprint, replica_id: str) -> None:
        """A replica broke under such a request."""
        now = self._clock()
        held = self._held.get(fingerprint)
        if held is None or now - held.last_at > FORGET_SECONDS:
            self._make_room()
            held = self._held[fingerprint] = Suspicion()
        held.incidents += 1
        held.last_at = now
        held.replica_ids.add(replica_id)
        repeats = held.incidents - QUARANTINE_AFTER_INCIDENTS
        if repeats >= 0:
            pause = QUARANTINE_SECONDS * 2 ** min(repeats, 10)
            held.until = now + min(QUARANTINE_SECONDS_MAX, pause)

    def clear(self, fingerprint: Fingerprint) -> None:
        """The very request that broke a replica was answered by another: it was not the request.

        That others of its kind are answered says nothing: who breaks engines sends sound requests
        too.
        """
        self._held.pop(fingerprint, None)

    def forget_replica(self, replica_id: str) -> None:
        """A replica is gone: what broke it alone is refused no longer, until it breaks another."""
        for held in self._held.values():
            if held.replica_ids == {replica_id}:
                held.until = 0.0

    def _make_room(self) -> None:
        while len(self._held) >= FINGERPRINTS_MAX:
            del self._held[next(iter(self._held))]
