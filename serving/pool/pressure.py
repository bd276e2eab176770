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
        self._room = Room(tokens_max)
        self._within = within

    @property
    def tokens(self) -> int:
        """What waits or runs."""
        return self._room.held

    def fits(self, ticket: Ticket) -> bool:
        """Tell whether one more request may come in."""
        part, size = PART[ticket.tier], ticket.input_tokens
        own = self._room.fits(ticket.organization_id, ticket.weight, size, part)
        return own and (self._within is None or self._within.fits(ticket))

    def add(self, ticket: Ticket) -> None:
        """One came in."""
        self._room.add(ticket.organization_id, ticket.input_tokens)
        if self._within is not None:
            self._within.add(ticket)

    def remove(self, ticket: Ticket) -> None:
        """One has ended, or left."""
        self._room.add(ticket.organization_id, -ticket.input_tokens)
        if self._within is not None:
            self._within.remove(ticket)
