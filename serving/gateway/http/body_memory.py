"""How many bytes of requests are held, and of answers that are given again, so that large ones
leave room for others."""

from serving.gateway.errors import ServiceUnavailable
from serving.pool.overload import SharedCapacity

BYTES_MAX = 512 * 1024 * 1024


class BodyMemory:
    """Of one gateway."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.room = SharedCapacity(bytes_max)

    def hold(self, organization_id: str, weight: int) -> "BodyReservation":
        """Return what counts one request's body."""
        return BodyReservation(self.room, organization_id, weight)


class BodyReservation:
    """The bytes of one body."""

    __slots__ = ("_organization_id", "_room", "_size", "_weight")

    def __init__(self, room: SharedCapacity, organization_id: str, weight: int) -> None:
        self._room = room
        self._organization_id = organization_id
        self._weight = weight
        self._size = 0

    def check(self, size: int) -> None:
        """Raise Unavailable when a body of this length would find no room."""
        if not self._room.fits(self._organization_id, self._weight, size - self._size):
            message = "Too many large requests are under way. Please try again."
            raise ServiceUnavailable(message, code="server_is_overloaded")

    def grow(self, size: int) -> None:
        """Hold so many bytes in all. Raises Unavailable."""
        self.check(size)
        self._room.add(self._organization_id, size - self._size)
        self._size = size

    def add(self, size: int) -> None:
        """Hold so many bytes more. Raises Unavailable."""
        self.grow(self._size + size)

    def release(self) -> None:
        """Hold nothing any more."""
        self._room.add(self._organization_id, -self._size)
        self._size = 0
