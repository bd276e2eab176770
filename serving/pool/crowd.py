"""Organizations that wait, counted by how they do: what many of them are given is told without
asking each."""

from collections import Counter

from serving.pool.member import Member

Likeness = tuple[float, int]
"""An organization's power, and how many slots it waits for."""


class Crowd:
    """Of one line."""

    def __init__(self) -> None:
        self._alike: Counter[Likeness] = Counter()
        self._likeness: dict[str, Likeness] = {}

    def __len__(self) -> int:
        return len(self._likeness)

    def note(self, member: Member) -> None:
        """Count an organization as it waits now, and no longer as it did."""
        before = self._likeness.pop(member.organization_id, None)
        if before is not None:
            self._alike[before] -= 1
            if not self._alike[before]:
                del self._alike[before]
        if member.waiting:
            likeness = self._likeness[member.organization_id] = member.power, member.waiting
            self._alike[likeness] += 1

    def slots(self, own: Member | None, turns: float, more: float = 0.0) -> float:
        """Return how many slots all but one's own organization are given in so many turns, each
        of which waits for so many `more`."""
        slots = 0.0
        for (power, waiting), organizations in self._alike.items():
            slots += organizations * min(waiting + more, turns * power)
        if own is not None and own.waiting:
            slots -= min(own.waiting + more, turns * own.power)
        return slots
