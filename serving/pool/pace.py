"""How fast a line moves: what tells a request at its coming when its turn would be."""

MEMORY_SECONDS = 30.0
"""Of the time in which somebody waited: what is longer ago counts less and less."""
SEEN_SECONDS_MIN = 1.0
SEEN_SLOTS_MIN = 8.0
LONG_SECONDS = 10.0
"""After so long few slots say as much as many."""


class Pace:
    """Slots given to those who waited, over the time in which somebody did."""

    def __init__(self) -> None:
        self._slots = 0.0
        self._seconds = 0.0
        self._at = 0.0

    def look(self, now: float, *, waited: bool) -> None:
        """Let time pass, in which somebody waited or nobody did."""
        passed, self._at = now - self._at, now
        if waited and passed > 0:
            kept = 0.5 ** (passed / MEMORY_SECONDS)
            self._slots *= kept
            self._seconds = self._seconds * kept + passed

    def note(self, slots: int) -> None:
        """One who waited was given so many slots."""
        self._slots += slots

    def seconds_for(self, slots: float) -> float:
        """Return how long so many slots take; 0 while too little was seen to tell."""
        is_brief = self._seconds < LONG_SECONDS and self._slots < SEEN_SLOTS_MIN
        if self._seconds < SEEN_SECONDS_MIN or is_brief:
            return 0.0
        return slots * self._seconds / max(1.0, self._slots)
