"""Two gateways with a balance that nobody else uses, and what can be asked of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
import psycopg

from billing.credit.models import GrantKind
from billing.credit.services.leases import answer
from serving.contract.lease import LeaseAsk, LeaseGrant, LeaseReply, LeaseRequest, LeaseReturn
from tests.simulation.cast import Cast, Wish
from tests.simulation.deeds.credit import make_grant
from tests.simulation.oracle import require

BUDGET = """
SELECT limit_nanos - posted_nanos - pending_nanos, pending_nanos, limit_nanos
FROM credit_budget WHERE budget_id = %s
"""
LEASE = "SELECT keep_nanos, recalled_at, settled_nanos FROM credit_lease WHERE id = %s"


@dataclass(slots=True)
class Edge:
    """Two gateways at the edges of one balance, which nobody else uses."""

    cast: Cast
    monitor: psycopg.Connection
    owner: str
    count: int = field(default=0)

    @property
    def budget_id(self) -> str:
        """The balance."""
        return f"balance:{self.owner}"

    def left(self) -> int:
        """Return what may still be granted."""
        return self._budget()[0]

    def pending(self) -> int:
        """Return what leases hold."""
        return self._budget()[1]

    def limit(self) -> int:
        """Return the balance's limit."""
        return self._budget()[2]

    def lease(self, lease_id: str) -> tuple[int, datetime | None, int]:
        """Return what a lease keeps, since when it is recalled, and what it settled."""
        row = self.monitor.execute(LEASE, [int(lease_id.partition(".")[2])]).fetchone()
        assert row is not None
        return row

    def ask(self, need: int, want: int, *, gateway: str = "edge_a", **given: object) -> LeaseReply:
        """Ask for one lease."""
        self.count += 1
        now = self.cast.now
        ask = LeaseAsk(f"edge-{self.owner}-{self.count}", self.budget_id, need, want, now)
        return self.poll(gateway, [msgspec.structs.replace(ask, **given)])

    def poll(
        self,
        gateway: str,
        asks: Sequence[LeaseAsk] = (),
        returns: Sequence[LeaseReturn] = (),
        *,
        now: datetime | None = None,
    ) -> LeaseReply:
        """Poll at a moment."""
        now = now or self.cast.now
        request = LeaseRequest(gateway, now, "", tuple(asks), tuple(returns))
        return answer(request, now=now)

    def granted(self, need: int, want: int, *, gateway: str = "edge_a") -> LeaseGrant:
        """Ask for what must be granted."""
        (given,) = self.ask(need, want, gateway=gateway).answers
        if not isinstance(given, LeaseGrant):
            require(False, "What is there is granted", need, want, self.left(), given)
        assert isinstance(given, LeaseGrant)
        return given

    def close(self, lease_id: str, *, gateway: str = "edge_a") -> None:
        """Give a lease back."""
        self.poll(gateway, returns=[LeaseReturn(lease_id, 0, True)])

    def give(self, nanos: int, name: str) -> str:
        """Grant credit that never ends; return the grant's id."""
        key = f"edge {self.owner} {name}"
        wish = self.cast.wishes[key] = Wish(self.owner, GrantKind.PREPAID, nanos, None)
        made: str = make_grant(key, wish, self.cast.now).pk
        return made

    def _budget(self) -> tuple[int, int, int]:
        row = self.monitor.execute(BUDGET, [self.budget_id]).fetchone()
        assert row is not None
        return row
