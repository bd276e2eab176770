"""The pressure on a pool, and on all pools of a gateway: input tokens that wait or run.

Every tier may use what is free, `batch` all but a reserve. A tier that holds less than its
guaranteed share is let in beyond that: nothing that other tiers hold refuses its requests. So a
gateway holds less than twice its bound, whatever comes.
"""

from serving.contract.units import TIERS, Tier
from serving.pool.room import Room
from serving.pool.ticket import Ticket

POOL_TOKENS_MAX = 48_000_000
ALL_TOKENS_MAX = 96_000_000
BATCH_PART = 0.8
"""Of all tokens: up to where `batch` may use what is free."""


class Pressure:
    """Of one pool, `within` that of all of them."""

    def __init__(self, tokens_max: int = POOL_TOKENS_MAX, within: "Pressure | None" = None) -> None:
        self.tokens = 0
        """Of what waits or runs."""
        self._tokens_max = tokens_max
        self._rooms: dict[Tier, Room] = {tier: Room(tokens_max) for tier in TIERS}
        self._levels: tuple[Pressure, ...] = (self, *(within._levels if within else ()))

    def fits(self, ticket: Ticket, guarantee: float) -> bool:
        """Tell whether one more request may come in, whose tier is guaranteed such a share."""
        size, part = ticket.input_tokens, BATCH_PART if ticket.tier == "batch" else 1.0
        for level in self._levels:
            room, most = level._rooms[ticket.tier], level._tokens_max
            left = max(most * part - level.tokens, most * guarantee - room.held)
            # Where all organizations of a tier leave half of it, so does each.
            is_easy = room.held + 2 * size <= left
            if not (is_easy or room.fits(ticket.organization_id, ticket.weight, size, left)):
                return False
        return True

    def add(self, ticket: Ticket) -> None:
        """One came in."""
        self._add(ticket, ticket.input_tokens)

    def remove(self, ticket: Ticket) -> None:
        """One has ended, or left."""
        self._add(ticket, -ticket.input_tokens)

    def _add(self, ticket: Ticket, tokens: int) -> None:
        for level in self._levels:
            level.tokens += tokens
            level._rooms[ticket.tier].add(ticket.organization_id, tokens)
