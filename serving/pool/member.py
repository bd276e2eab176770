"""An organization's standing in one line, and its requests there."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from serving.engine.events import TokenUsage
from serving.pool.errors import PoolError
from serving.pool.replica import Replica
from serving.pool.ticket import Ticket

if TYPE_CHECKING:
    from serving.pool.pool import Pool
    from serving.pool.queue import FairQueue

RECENT = 0.2
"""How much the latest answer counts in the mean length of answers."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A request in line, in each of `queues`; `turn` is done when its wait is over, one way or the
    other."""

    ticket: Ticket
    avoid: Collection[str]
    turn: asyncio.Future["Place | PoolError"]
    queues: list["FairQueue"] = field(default_factory=list)

    def leave(self) -> None:
        """Step out of all lines; harmless when one is in none."""
        for queue in self.queues:
            queue.leave(self)


@dataclass(slots=True, eq=False)
class Member:
    """`counter` is the service received, over the weight; `waiting` and `running` are slots.

    `part` is how much of its weight counts at this gateway: where an organization waits at
    several, all of them together count it once.
    """

    organization_id: str
    mean_output: float
    weight: int = 1
    part: float = 1.0
    counter: float = 0.0
    running: int = 0
    waiting: int = 0
    tokens: int = 0
    waiters: OrderedDict[Waiter, None] = field(default_factory=OrderedDict)

    @property
    def is_idle(self) -> bool:
        """Whether it neither waits nor is served."""
        return not self.waiters and not self.running

    @property
    def power(self) -> float:
        """Its weight, as far as it counts here."""
        return self.weight * self.part

    def add(self, waiter: Waiter) -> None:
        """Put a request behind its others."""
        self.waiters[waiter] = None
        self.waiting += waiter.ticket.width
        self.tokens += waiter.ticket.input_tokens

    def remove(self, waiter: Waiter) -> None:
        """Take a request out, wherever it stands."""
        del self.waiters[waiter]
        self.waiting -= waiter.ticket.width
        self.tokens -= waiter.ticket.input_tokens

    def likely_output(self, ticket: Ticket) -> float:
        """Return how many tokens an answer probably has."""
        return min(ticket.output_tokens_max, self.mean_output * ticket.width)

    def note_output(self, tokens: float) -> None:
        """Take in how long an answer of one sequence was."""
        self.mean_output += RECENT * (tokens - self.mean_output)


@dataclass(slots=True, eq=False)
class Service:
    """One request being served, and what its organization was charged for it so far, all of it by
    the `power` of its start, whatever the organization's part is by then.

    `began_at` is monotonic seconds, and so is `vacated_at`, once its slots are free before it ends.
    `progress` returns the tokens that the engine has counted so far, None where it has counted
    none. A request that `is_settled` is charged nothing more.
    """

    member: Member
    ticket: Ticket
    charged: float
    power: float
    began_at: float = 0.0
    vacated_at: float | None = None
    progress: Callable[[], TokenUsage | None] | None = None
    is_settled: bool = False


class Place(NamedTuple):
    """Where a request is worked on, what that counts for its organization, and how many blocks of
    its prompt are read before it is answered."""

    pool: "Pool"
    replica: Replica
    service: Service
    unread: int = 0
