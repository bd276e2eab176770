"""Work that goes on for clients that left, to learn what it took.

An engine says what a prompt took with its first token. Who hangs up just before it would have the
prefill for nothing, so the call stays open until the engine has said something, for a while, and
for so many requests of an organization.
"""

from collections import Counter

LINGER_SECONDS = 5.0
LINGERING_MAX = 32
"""Of one organization. Such requests keep their slots, as if their clients had stayed."""


class Lingering:
    """How many requests of each organization nobody waits for."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Of all organizations."""
        return self._counts.total()

    def enter(self, organization_id: str) -> bool:
        """Count one more, unless there are too many."""
        if self._counts[organization_id] >= LINGERING_MAX:
            return False
        self._counts[organization_id] += 1
        return True

    def leave(self, organization_id: str) -> None:
        """End what `enter` began."""
        self._counts[organization_id] -= 1
        if not self._counts[organization_id]:
            del self._counts[organization_id]
