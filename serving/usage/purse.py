"""The purse of one budget: its leases, who waits for money, and what to ask billing for."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from serving.contract.lease import Ask, Granted, Refused
from serving.usage.demand import RecentDemand
from serving.usage.hold import Part, Parts
from serving.usage.lease import Lease

WANT_NANOS_MIN = 10_000_000
"""One cent: the least a gateway asks ahead while a budget is in use."""

REFUSAL_SECONDS = 0.5
"""A refusal is believed this long, so that a grant of credit works within 2 s."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Billing said no to a shortfall of `need_nanos`; believed until `until`."""

    code: str
    need_nanos: int
    recall_in_progress: bool
    until: float


class Purse:
    """Money of one budget in this gateway. `now` is monotonic seconds throughout."""

    def __init__(self, budget_id: str, new_id: Callable[[], str]) -> None:
        self.budget_id = budget_id
        self.leases: list[Lease] = []
        self.ask: Ask | None = None
        self.refusal: Refusal | None = None
        self._new_id = new_id
        self._demand = RecentDemand()
        self._needs: dict[asyncio.Future[None], int] = {}

    def spendable(self, now: float) -> int:
        """Return what new requests could hold."""
        return sum(lease.spendable(now) for lease in self.leases)

    def is_idle(self, now: float) -> bool:
        """Whether nobody wants anything of it: no lease, no ask, no waiter, no recent demand."""
        wanted = self.leases or self.ask or self._needs
        return not wanted and self._demand.total(now) == 0

    def try_hold(self, nanos: int, now: float) -> Parts | None:
        """Hold `nanos` over as few leases as it takes, or nothing and None."""
        parts: list[Part] = []
        missing = nanos
        for lease in self.leases:
            taken = min(missing, lease.spendable(now))
            if taken:
                parts.append(Part(lease, taken))
                missing -= taken
            if missing == 0:
                break
        if missing:
            return None
        for part in parts:
            part.lease.held_nanos += part.nanos
        self._demand.add(nanos, now)
        return tuple(parts)

    def refuses(self, nanos: int, now: float) -> Refusal | None:
        """Return the refusal in force for a request of `nanos`, if there is one."""
        refusal = self.refusal
        if refusal is None or now >= refusal.until:
            return None
        shortfall = nanos - self.spendable(now)
        return refusal if shortfall >= refusal.need_nanos else None

    async def wait(self, nanos: int, seconds: float) -> None:
        """Wait for news of a lease, at most `seconds`; counts as needing `nanos` meanwhile."""
        news = asyncio.get_running_loop().create_future()
        self._needs[news] = nanos
        try:
            async with asyncio.timeout(seconds):
                await news
        except TimeoutError:
            return
        finally:
            del self._needs[news]

    def wake(self) -> None:
        """Let all who wait look again."""
        for news in self._needs:
            if not news.done():
                news.set_result(None)

    def next_ask(self, now: float) -> Ask | None:
        """Return the ask that is open or due; the same one until it is answered."""
        if self.ask is None:
            self.ask = self._make_ask(now)
        return self.ask

    def _make_ask(self, now: float) -> Ask | None:
        spendable, recent = self.spendable(now), self._demand.total(now)
        needs = self._needs.values()
        wanted = max(2 * recent, WANT_NANOS_MIN)
        if needs:
            shortfall = max(1, min(needs) - spendable)
            return self._ask(shortfall, max(shortfall, wanted, sum(needs)))
        if recent and 2 * spendable < wanted and self.refuses(spendable + 1, now) is None:
            return self._ask(1, wanted)
        return None

    def _ask(self, need_nanos: int, want_nanos: int) -> Ask:
        return Ask(self._new_id(), self.budget_id, need_nanos, want_nanos)

    def accept(self, answer: Granted, admits_until: float) -> Lease | None:
        """Take a granted lease in, once; `wake` those who wait when it admits."""
        if self.ask is None or self.ask.ask_id != answer.ask_id:
            return None
        self.ask = self.refusal = None
        lease = Lease(answer.lease_id, self.budget_id, answer.granted_nanos, admits_until)
        self.leases.append(lease)
        return lease

    def believe(self, answer: Refused, now: float) -> None:
        """Remember a refusal for a moment."""
        if self.ask is None or self.ask.ask_id != answer.ask_id:
            return
        need_nanos, self.ask = self.ask.need_nanos, None
        until = now + REFUSAL_SECONDS
        self.refusal = Refusal(answer.code, need_nanos, answer.recall_in_progress, until)
        self.wake()
