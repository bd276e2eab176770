"""How many bytes of requests' bodies are held, so that large ones leave room for others.

An organization may hold as much as it leaves free, times its weight: alone it has half, and the
more others hold, the earlier it is refused. (Dynamic thresholds, as switches divide their buffers:
Choudhury and Hahne, 1998.)
"""

from collections import Counter

from serving.gateway.errors import Unavailable

BYTES_MAX = 512 * 1024 * 1024


class Bodies:
    """Of one gateway."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.total_bytes = 0
        self._bytes_max = bytes_max
        self._of: Counter[str] = Counter()

    def hold(self, organization_id: str, weight: int) -> "HeldBody":
        """Return what counts one request's body."""
        return HeldBody(self, organization_id, weight)

    def has_room(self, organization_id: str, weight: int, size: int) -> bool:
        """Tell whether so many bytes more may be held."""
        left = self._bytes_max - self.total_bytes - size
        return left >= 0 and self._of[organization_id] + size <= weight * left

    def add(self, organization_id: str, size: int) -> None:
        """Hold more, or less."""
        self.total_bytes += size
        self._of[organization_id] += size
        if not self._of[organization_id]:
            del self._of[organization_id]


class HeldBody:
    """The bytes of one body."""

    __slots__ = ("_bodies", "_organization_id", "_size", "_weight")

    def __init__(self, bodies: Bodies, organization_id: str, weight: int) -> None:
        self._bodies = bodies
        self._organization_id = organization_id
        self._weight = weight
        self._size = 0

    def check(self, size: int) -> None:
        """Raise Unavailable when a body of this length would find no room."""
        if not self._bodies.has_room(self._organization_id, self._weight, size - self._size):
            message = "Too many large requests are under way. Please try again."
            raise Unavailable(message, code="server_is_overloaded")

    def grow(self, size: int) -> None:
        """Hold so many bytes in all. Raises Unavailable."""
        self.check(size)
        self._bodies.add(self._organization_id, size - self._size)
        self._size = size

    def release(self) -> None:
        """Hold nothing any more."""
        self._bodies.add(self._organization_id, -self._size)
        self._size = 0
