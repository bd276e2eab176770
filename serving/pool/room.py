"""Room that organizations share: each may hold as much as it leaves free, times its weight.

Alone it has half, and the more others hold, the earlier it is refused. (Dynamic thresholds, as
switches divide their buffers: Choudhury and Hahne, 1998.)
"""


class Room:
    """Of so many bytes, or tokens, in all."""

    def __init__(self, size_max: int) -> None:
        self.held = 0
        self.size_max = size_max
        self._of: dict[str, int] = {}

    def fits(self, organization_id: str, weight: int, size: int, free: float | None = None) -> bool:
        """Tell whether an organization may hold so much more, where so much is `free`: by default
        what nobody holds."""
        left = (self.size_max - self.held if free is None else free) - size
        return left >= 0 and self._of.get(organization_id, 0) + size <= max(1, weight) * left

    def add(self, organization_id: str, size: int) -> None:
        """Hold more, or less."""
        self.held += size
        own = self._of.get(organization_id, 0) + size
        if own:
            self._of[organization_id] = own
        else:
            self._of.pop(organization_id, None)
