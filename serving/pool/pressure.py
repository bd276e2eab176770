"""The pressure on a pool, and on all pools of a gateway: input tokens that wait or run.

Where it is high, less urgent tiers are shed first: each fills a part of the room, and what is
beyond that is there for the tiers above it.
"""

from serving.contract.units import Tier
from serving.pool.room import Room
from serving.pool.ticket import Ticket

POOL_TOKENS_MAX = 48_000_000
ALL_TOKENS_MAX = 96_000_000
PART: dict[Tier, float] = {"priority": 1.0, "default": 0.9, "flex": 0.7, "batch": 0.5}
"""Of the room, that what waits or runs may fill for another request of a tier to come in."""


class Pressure:
    """Of one pool, `within` that of all of them."""

    def __init__(self, tokens_max: int = POOL_TOKENS_MAX, within: "Pressure | None" = None) -> None:
        self._rooms: tuple[Room, ...] = (Room(tokens_max), *(within._rooms if within else ()))

    @property
    def tokens(self) -> int:
        """What waits or runs."""
        return self._rooms[0].held

    def fits(self, ticket: Ticket) -> bool:
        """Tell whether one more request may come in."""
        part, size = PART[ticket.tier], ticket.input_tokens
        for room in self._rooms:
            # Where all of them leave half of it, so does each.
            is_easy = 2 * (room.held + size) <= room.size_max * part
            if not (is_easy or room.fits(ticket.organization_id, ticket.weight, size, part)):
                return False
        return True

    def add(self, ticket: Ticket) -> None:
        """One came in."""
        for room in self._rooms:
            room.add(ticket.organization_id, ticket.input_tokens)

    def remove(self, ticket: Ticket) -> None:
        """One has ended, or left."""
        for room in self._rooms:
            room.add(ticket.organization_id, -ticket.input_tokens)
