"""Who acts in a seed, what they remember, and the calls that they make."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from billing.credit.models import GrantKind
from control.permissions import Actor
from serving.contract.lease import LeaseRequest
from tests.simulation.gateway import Gateway
from tests.simulation.payers import Payers, make_payers
from tests.simulation.plan import GATEWAYS
from tests.simulation.world import World

OPERATOR = Actor.for_system("simulation")
SKEW_MAX_SECONDS = 240
RATINGS = (2, 2, 1)
"""The rules by which gateways charge: an old one has yet to learn of the new one."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A grant that the operator wants, by its idempotency key."""

    organization_id: str
    kind: GrantKind
    amount_nanos: int
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Transfer:
    """A payment, or money put right, that the operator books by its idempotency key."""

    organization_id: str
    kind: str
    amount_nanos: int
    tax_nanos: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """A credit note that the operator wants: cents by line of an invoice; None for all left."""

    organization_id: str
    invoice_id: str
    lines: dict[int, int] | None


@dataclass(slots=True)
class Cast:
    """Who acts, and what they remember."""

    world: World
    gateways: list[Gateway]
    payers: Payers
    wishes: dict[str, Wish] = field(default_factory=dict)
    payments: dict[str, Transfer] = field(default_factory=dict)
    adjustments: dict[str, Transfer] = field(default_factory=dict)
    notes: dict[str, Note] = field(default_factory=dict)
    disputes: set[tuple[str, str]] = field(default_factory=set)
    """Invoice and key of each dispute that somebody opened."""
    released: set[int] = field(default_factory=set)
    """Leases that an operator gave up."""
    acknowledged: set[str] = field(default_factory=set)
    acknowledged_real: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    poisoned: set[bytes] = field(default_factory=set)
    contents: dict[str, set[tuple[object, ...]]] = field(default_factory=dict)

    @property
    def now(self) -> datetime:
        """The moment by billing's clock."""
        return self.world.clock.now


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call to make, in words, and what to do with its value."""

    words: str
    work: Callable[[], Any]
    hear: Callable[[Any], None] = lambda _: None
    allowed: tuple[type[Exception], ...] = ()
    request: LeaseRequest | None = None
    must_fail: bool = False
    """Whether only one of the allowed errors will do."""
    is_brief: bool = False
    """Whether it says how long it waits for any lock, so that one busy balance stops nobody."""


def make_cast(world: World, rng: random.Random) -> Cast:
    """Return the gateways, each with a clock of its own."""
    gateways = []
    for number in range(GATEWAYS):
        skew = timedelta(seconds=rng.randint(-SKEW_MAX_SECONDS, SKEW_MAX_SECONDS))
        rating = rng.choice(RATINGS)
        gateways.append(Gateway(f"gw{number}", world, skew * rng.choice((0, 1)), rating))
    return Cast(world, gateways, make_payers(world.clock))
