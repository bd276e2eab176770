"""Reports that name only what changed: whatever is lost, restarts or vanishes, the fleet divides as
if everything had been said at once."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.slot_shares import (
    NEVER_PAID,
    ORGANIZATIONS_MAX,
    DemandReport,
    SlotSharesReply,
)
from serving.contract.units import TIERS, Tier
from serving.fleet.demand_totals import DemandTotals
from serving.fleet.slot_division import due_by_tier, never_paid_parts
from serving.fleet.slot_shares import GATEWAY_SECONDS, SlotAllocator
from serving.internal_http import InternalCallError
from serving.pool.pool import Pool
from serving.pool.queue import Waiter
from serving.pool.slot_request import SlotRequest
from serving.pool.tier_queue import QueueLimits, ServiceCharge
from tests.fixtures.demand import demand_of
from tests.serving.pool.cluster import Cluster, Reporter, leaping

GATEWAYS, SLOTS = 3, 6
DEPLOYMENT = "dep"
PART_ERROR_MAX = 5 / 3
"""By how much a part that was told may be off: the need of all moved by a quarter either way."""


@dataclass
class Requests:
    """What waits and runs at one gateway."""

    pool: Pool
    waiting: list[Waiter] = field(default_factory=list)
    running: list[ServiceCharge] = field(default_factory=list)


class Unsettled:
    """Gateways whose reports are sent by hand; the `lost` ones, the `absent` have no such
    deployment."""

    def __init__(self) -> None:
        self.cluster = Cluster(GATEWAYS, SLOTS)
        self.now = 100.0
        self.cluster.clock = lambda: self.now
        self.lost = ""
        self.absent: set[int] = set()
        self.reports: list[DemandReport] = []
        self.requests = [Requests(pool) for pool in self.cluster.pools]
        for gateway in range(GATEWAYS):
            self._connect(gateway)

    def _connect(self, gateway: int) -> None:
        reporter = self.cluster.reporters[gateway]
        post = reporter._post

        async def send(report: DemandReport, seconds: float) -> SlotSharesReply:
            if self.lost == "report":
                raise InternalCallError("lost")
            self.reports.append(report)
            reply = await post(report, seconds)
            if self.lost == "reply":
                raise InternalCallError("lost")
            return reply

        reporter._post = send  # type: ignore[method-assign]
        reporter._pools = lambda: (
            {} if gateway in self.absent else {DEPLOYMENT: self.cluster.pools[gateway]}
        )

    async def do(self, deed: str, gateway: int, number: int) -> None:
        own = self.requests[gateway]
        if deed == "join":
            request = wanted(number)
            own.waiting.append(own.pool.queue.join(request, ()))
        elif deed == "serve":
            own.running.append(own.pool.queue.serve_at_once(wanted(number)))
        elif deed == "leave" and own.waiting:
            own.waiting.pop(number % len(own.waiting)).leave()
        elif deed == "end" and own.running:
            own.pool.queue.end(own.running.pop(number % len(own.running)))
        elif deed in ("told", "report", "reply"):
            self.lost = "" if deed == "told" else deed
            await self.cluster.reporters[gateway].report()
        elif deed == "time":
            self.now += number / 30 * GATEWAY_SECONDS
        elif deed == "absent":
            self.absent ^= {gateway}
        elif deed == "fleet":
            self.cluster._fleet = SlotAllocator(epoch=1)
        elif deed == "gateway":
            self._restart(gateway)

    def _restart(self, gateway: int) -> None:
        """It begins with empty queues; who waited is gone."""
        pool = Pool(DEPLOYMENT, share_of=self.cluster.shares[gateway].of)
        pool.set_replicas({id_: one.record for id_, one in self.cluster.pools[0].replicas.items()})
        self.cluster.pools[gateway] = pool
        self.requests[gateway] = Requests(pool)
        self.cluster.reporters[gateway] = Reporter(self.cluster, gateway)
        self._connect(gateway)

    async def settle(self) -> None:
        """Let every report arrive, until nothing changes any more."""
        self.lost = ""
        for _ in range(6):
            self.now += 0.2
            for reporter in self.cluster.reporters:
                await reporter.report()

    def check(self) -> None:
        """What the fleet adds up is what all say together now."""
        known = self.cluster._fleet._totals.get(DEPLOYMENT, DemandTotals())
        whole = DemandTotals()
        here = [gateway for gateway in range(GATEWAYS) if gateway not in self.absent]
        for gateway in here:
            demand = demand_of(self.cluster.pools[gateway])
            whole.apply(f"g{gateway}", demand, is_whole=True)
        assert known.gateways == whole.gateways
        for slots in (0, 1, 7, 100):
            assert due_by_tier(slots, known) == due_by_tier(slots, whole)
            assert never_paid_parts(slots, known) == never_paid_parts(slots, whole)
        for gateway in here:
            name = f"g{gateway}"
            assert known.organizations(name) == whole.organizations(name)
            everyone = whole.organizations(name)
            assert known.parts(name, everyone) == whole.parts(name, everyone)
            for line in self.cluster.pools[gateway].queue.tier_queues.values():
                for tenant in line.busy():
                    if tenant.waiting and tenant.tenant_id != NEVER_PAID:
                        [part] = whole.parts(name, [tenant.tenant_id]).values()
                        told = tenant.weight_share
                        assert part / PART_ERROR_MAX <= told <= part * PART_ERROR_MAX
        for gateway in self.absent:
            assert not self.cluster._fleet.in_use(f"g{gateway}")


def wanted(number: int) -> SlotRequest:
    """Return one of 4 organizations' requests, in one of two tiers."""
    tier: Tier = TIERS[number % 2 * 2]
    return SlotRequest(
        "abcd"[number // 2 % 4],
        tier=tier,
        weight=1 + number // 8 % 2,
        sequences=1 + number // 16 % 2,
        is_paying=number % 5 != 0,
        seconds_max=10_000.0,
    )


DEEDS = st.tuples(
    st.sampled_from(
        (
            *("join", "join", "join", "serve", "leave", "end", "told", "told", "told"),
            *("report", "reply", "time", "absent", "fleet", "gateway"),
        )
    ),
    st.integers(0, GATEWAYS - 1),
    st.integers(0, 59),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(DEEDS, max_size=25), max_size=4))
def test_what_changed_adds_up_to_the_whole(phases: list[list[tuple[str, int, int]]]) -> None:
    async def live() -> None:
        world = Unsettled()
        for deeds in phases:
            for deed in deeds:
                await world.do(*deed)
            await world.settle()
            world.check()

    leaping(live())


def told_by(report: DemandReport) -> dict[str, tuple[int, int]]:
    tiers = report.deployments[DEPLOYMENT].tiers
    return {name: (one.running, one.waiting) for name, one in tiers.get("default", {}).items()}


def test_a_report_names_who_changed_since_the_last_that_was_answered() -> None:
    async def live() -> None:
        world = Unsettled()
        pool, reporter = world.cluster.pools[0], world.cluster.reporters[0]
        world.cluster.slots = dict.fromkeys(world.cluster.slots, 0)  # nobody is served
        for name in "abc":
            pool.queue.join(SlotRequest(name), ())
        await reporter.report()
        waiter = pool.queue.join(SlotRequest("b"), ())
        await reporter.report()
        await reporter.report()
        waiter.leave()
        await world.do("reply", 0, 0)
        world.lost = ""
        await reporter.report()
        world.cluster._fleet = SlotAllocator(epoch=2)
        await reporter.report()
        first, second, third, lost, whole, refused, again = world.reports
        assert told_by(first) == {"a": (0, 1), "b": (0, 1), "c": (0, 1)}
        assert told_by(second) == {"b": (0, 2)}
        assert told_by(third) == {}
        assert told_by(lost) == {"b": (0, 1)}
        assert told_by(whole) == told_by(again) == told_by(first)
        assert told_by(refused) == {}
        bases = [one.base for one in (first, second, third, lost, whole, refused, again)]
        assert [base > 0 for base in bases] == [False, True, True, True, False, True, False]

    leaping(live())


def test_of_more_organizations_than_a_report_holds_those_that_pay_are_named() -> None:
    async def live() -> None:
        bounds = QueueLimits(requests=10 * ORGANIZATIONS_MAX)
        cluster = Cluster(1, 1, bounds)
        [pool], [reporter] = cluster.pools, cluster.reporters
        totals: Any = None
        for number in range(ORGANIZATIONS_MAX + 50):
            pool.queue.join(SlotRequest(f"free_{number}", is_paying=False), ())
        await reporter.report()
        paying = [pool.queue.join(SlotRequest(f"paid_{number}"), ()) for number in range(20)]
        await reporter.report()
        totals = cluster._fleet._totals[DEPLOYMENT]
        named = totals.organizations("g0")
        assert {f"paid_{number}" for number in range(20)} <= named
        assert len(named) == ORGANIZATIONS_MAX // 2 + 20
        for waiter in paying:
            waiter.leave()
        await reporter.report()
        assert len(totals.organizations("g0")) == ORGANIZATIONS_MAX // 2

    leaping(live())
