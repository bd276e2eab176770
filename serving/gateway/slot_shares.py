"""This gateway's share of each replica's slots: the fleet is told all the time what there is to do.

Until the fleet has answered once it takes none, and where the fleet cannot be asked, an even part,
by the gateways that control counts. A gateway that the fleet does not answer any more keeps its
last share. Of KV caches it then takes what its slots say, and begins a request that is larger
where it runs nothing else.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

import aiohttp
import structlog

from serving.contract.ids import new_id
from serving.contract.replica import ReplicaRecord
from serving.contract.slot_shares import (
    ORGANIZATIONS_MAX,
    DemandReport,
    DeploymentDemand,
    KvDemand,
    KvGrant,
    OrganizationDemand,
    ReplicaUsage,
    SlotSharesReply,
)
from serving.contract.tiers import DEFAULT_GUARANTEES
from serving.contract.units import TIERS
from serving.internal_http import InternalCallError, InternalHttpClient
from serving.pool.pool import Pool
from serving.pool.queue import Waiter
from serving.pool.tier_queue import TierQueue

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS = 0.25
MOVING_REPORT_SECONDS = 0.1
"""Between reports while slots are on their way,"""
MOVING_SECONDS = 1.0
"""for so long after the fleet divided them anew, where somebody waits for them."""
ASK_SECONDS = 1.0
LEAVE_SECONDS = 0.5
SILENT_SECONDS = 2.0
"""After which requests wait no more for permits of a fleet that does not answer."""
NO_GRANT = KvGrant(0)


class GrantedSlots:
    """What the fleet granted; `of` is what pools go by. `gateways` tells how many there are, as
    control knows."""

    def __init__(self, gateways: Callable[[], int]) -> None:
        self.live_gateway_count = 1
        self.has_reply = False
        self.is_unanswered = False
        """Whether the fleet could not be asked and never answered."""
        self._shares: dict[str, int] = {}
        self._kv: dict[str, KvGrant] = {}
        self._exceedable: frozenset[str] = frozenset()
        self._gateways = gateways

    def of(self, record: ReplicaRecord) -> int:
        """Return how many of a replica's slots this gateway may take."""
        if self.has_reply:
            return min(record.slots, self._shares.get(record.replica_id, 0))
        if self.is_unanswered:
            return min(record.slots, max(1, record.slots // self._gateways()))
        return 0

    def may_exceed(self, record: ReplicaRecord) -> bool:
        """Tell whether a request of several choices may take more of a replica than its share:
        where the fleet allows it, or cannot be asked."""
        return self.is_unanswered or record.replica_id in self._exceedable

    def apply(self, reply: SlotSharesReply) -> bool:
        """Take in an answer; tell whether any share shrank, or may be exceeded no more."""
        shrank = any(reply.shares.get(one, 0) < share for one, share in self._shares.items())
        shrank |= not self._exceedable.issubset(reply.may_exceed)
        shrank |= any(
            reply.kv.get(id_, NO_GRANT).share < grant.share for id_, grant in self._kv.items()
        )
        self._shares, self.has_reply, self.is_unanswered = reply.shares, True, False
        self._kv = reply.kv
        self._exceedable = frozenset(reply.may_exceed)
        self.live_gateway_count = reply.live_gateway_count
        return shrank


class DemandReporter:
    """Asks the fleet for shares, as often as there is a reason to."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        fleet_url: str,
        credential: str,
        *,
        gateway_id: str,
        shares: GrantedSlots,
        pools: Callable[[], Mapping[str, Pool]],
        report_seconds: float,
    ) -> None:
        self.failures = 0
        self._report_seconds = report_seconds
        self._fleet = InternalHttpClient(session, fleet_url, credential)
        self._gateway_id = gateway_id
        self._shares = shares
        self._pools = pools
        self._run_id = new_id()
        self._number = time.time_ns() // 1_000_000
        """Of reports; by the clock for fleets that do not ask for a life."""
        self._wake = asyncio.Event()
        self._base = 0
        """The number of the last report, where the fleet answered it,"""
        self._known: dict[str, KnownDemand] = {}
        """and what it knows by then of each deployment."""
        self._answered_at = self._divided_at = 0.0
        self._epoch = 0

    def wake(self) -> None:
        """Something changed: the fleet is told soon."""
        self._wake.set()

    async def run(self) -> None:
        """Report for ever: when something changed, often while anything runs, twice as often while
        slots are on their way, and now and then. A share that shrank is confirmed at once: until
        then nobody else has it."""
        while True:
            self._wake.clear()
            if await self.report():
                await self.report()
            pause = min(MOVING_REPORT_SECONDS, self._report_seconds)
            await asyncio.sleep(pause)
            if self._is_moving():
                continue
            await asyncio.sleep(self._report_seconds - pause)
            if all(pool.is_idle for pool in self._pools().values()):
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS - self._report_seconds):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    def _is_moving(self) -> bool:
        """Tell whether slots are on their way: to requests that wait, since the fleet divided them
        anew a moment ago, or back from here."""
        is_new = asyncio.get_running_loop().time() - self._divided_at < MOVING_SECONDS
        pools = self._pools().values()
        return (is_new and any(pool.queue.is_waited for pool in pools)) or any(
            one.is_exceeded for pool in pools for one in pool.ready
        )

    async def report(self) -> bool:
        """Tell the fleet what there is to do, and go by what it says; tell whether a share
        shrank."""
        pools = self._pools()
        try:
            reply, is_whole = await self._ask(pools)
        except InternalCallError as error:
            self._base = 0
            self._note_failure(error)
            return False
        if self.failures:
            log.info("fleet_answers", after=self.failures)
            self.failures = 0
        self._answered_at = asyncio.get_running_loop().time()
        if reply.epoch != self._epoch:
            self._epoch, self._divided_at = reply.epoch, self._answered_at
        has_shrunk = self._shares.apply(reply)
        for deployment_id, pool in pools.items():
            pool.set_engine_loads(reply.strains)
            pool.set_kv_grants(reply.kv)
            pool.queue.set_weight_shares(reply.parts.get(deployment_id, {}), are_all=is_whole)
            tiers = reply.tiers.get(deployment_id)
            pool.set_shares(tiers, {**DEFAULT_GUARANTEES, **reply.guarantees})
        return has_shrunk

    async def send_leaving(self) -> None:
        """Give all slots back: nothing runs here any more."""
        try:
            await self._post(self._next_report({}, is_leaving=True), LEAVE_SECONDS)
        except InternalCallError as error:
            log.warning("slots_left_to_time_out", error=str(error))

    def _note_failure(self, error: InternalCallError) -> None:
        self.failures += 1
        if self.failures == 1:
            log.warning("fleet_divides_no_slots", error=str(error))
        silent_seconds = asyncio.get_running_loop().time() - self._answered_at
        for pool in self._pools().values():
            pool.set_engine_loads({})
            if silent_seconds >= SILENT_SECONDS:
                pool.set_kv_grants({})
                pool.dispatch()
        if not self._shares.has_reply:
            self._shares.is_unanswered = True
            # Each time: there may be more gateways by now, or fewer.
            for pool in self._pools().values():
                pool.set_shares({})

    async def _ask(self, pools: Mapping[str, Pool]) -> tuple[SlotSharesReply, bool]:
        """Report what changed, or all where the fleet does not know what was said before; return
        the answer, and whether all was told. Raises InternalCallError."""
        base = self._base
        reply = await self._post(self._next_report(pools), ASK_SECONDS)
        if base and reply.number != self._number:
            base = self._base = 0
            reply = await self._post(self._next_report(pools), ASK_SECONDS)
        self._base = reply.number
        return reply, not base

    def _next_report(self, pools: Mapping[str, Pool], *, is_leaving: bool = False) -> DemandReport:
        before = self._known if self._base else {}
        self._known = {id_: before.get(id_) or KnownDemand() for id_ in pools}
        taken = ((id_, self._known[id_].take(pool)) for id_, pool in pools.items())
        demands = {id_: demand for id_, demand in taken if demand != NO_DEMAND}
        self._number += 1
        return DemandReport(
            *(self._gateway_id, self._number, demands, is_leaving, self._run_id), base=self._base
        )

    async def _post(self, report: DemandReport, seconds: float) -> SlotSharesReply:
        return await self._fleet.post("demand", report, SlotSharesReply, seconds)


NO_DEMAND = DeploymentDemand()
"""Of a model that nobody asks for and that has no replica: nothing is said of it."""


class KnownDemand:
    """What the fleet knows of one pool: by tier the organizations that it heard of."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._tiers = {tier: KnownOrganizations() for tier in TIERS}

    def take(self, pool: Pool) -> DeploymentDemand:
        """Return what a pool has to do and what it holds; of organizations those that the fleet
        does not know as they are now."""
        is_other, self._pool = pool is not self._pool, pool
        organizations = {}
        for tier, line in pool.queue.tier_queues.items():
            known = self._tiers[tier]
            changed = known.all_of(line) if is_other else list(line.changed)
            line.changed.clear()
            organizations[tier] = known.take(line, changed)
        in_use = pool.urgent_tiers
        tiers = {
            tier: named
            for tier, named in organizations.items()
            if len(self._tiers[tier]) or tier in in_use
        }
        return DeploymentDemand(replica_usage(pool), tiers, pool.queue.has_multi_sequence_waiter)


NOTHING = OrganizationDemand(1, 0, 0)
NEVER_PAID_MAX = ORGANIZATIONS_MAX // 2
"""Of the organizations of a tier, so that those that pay are told of however many do not."""


class KnownOrganizations:
    """The organizations of one tier of a pool that the fleet heard of, and that are busy: where
    there are too many, some stand for all."""

    def __init__(self) -> None:
        self._paying: set[str] = set()
        self._never_paid: set[str] = set()

    def __len__(self) -> int:
        return len(self._paying) + len(self._never_paid)

    def all_of(self, line: TierQueue[Waiter]) -> set[str]:
        """Return those that are known, and all that are busy."""
        busy = list(line.busy())
        never_paid = (one.within.busy() for one in busy if one.within is not None)
        ids = {one.tenant_id for one in busy if one.within is None}
        ids.update(one.tenant_id for tenants in never_paid for one in tenants)
        return ids | self._paying | self._never_paid

    def take(
        self, line: TierQueue[Waiter], changed: Iterable[str]
    ) -> dict[str, OrganizationDemand]:
        """Return what organizations that changed have to do by now. Those for which there is no
        room stay noted as changed."""
        found: dict[str, OrganizationDemand] = {}
        for id_ in changed:
            tenant, is_paying = line.find(id_)
            is_known = id_ in self._paying or id_ in self._never_paid
            if tenant is None and not is_known:
                continue
            if len(found) == ORGANIZATIONS_MAX or not (is_known or self._has_room(is_paying)):
                line.changed.add(id_)
                continue
            self._paying.discard(id_)
            self._never_paid.discard(id_)
            if tenant is None:
                found[id_] = NOTHING
                continue
            (self._paying if is_paying else self._never_paid).add(id_)
            found[id_] = OrganizationDemand(
                tenant.weight, tenant.running, tenant.waiting, is_paying
            )
        return found

    def _has_room(self, is_paying: bool) -> bool:
        has_room = len(self) < ORGANIZATIONS_MAX
        return has_room and (is_paying or len(self._never_paid) < NEVER_PAID_MAX)


def replica_usage(pool: Pool) -> dict[str, ReplicaUsage]:
    """Return what a gateway holds of each replica of a pool: slots, and tokens of its KV cache."""
    kv = _kv_demands(pool)
    return {
        id_: ReplicaUsage(one.share, one.in_flight, one.may_exceed or one.is_exceeded, kv.get(id_))
        for id_, one in pool.replicas.items()
    }


def _kv_demands(pool: Pool) -> dict[str, KvDemand | None]:
    """Return what a pool has of KV caches. Where all slots are taken, room is kept for the request
    whose turn is next, which could not ask for it yet."""
    if not pool.has_kv_bound:
        return {}
    waiter, need = pool.queue.first(), None
    if waiter is None:
        pool.kv_reservation.clear()
    else:
        need = pool.queue.kv_need(waiter.request)
        if pool.kv_reservation.replica is None:
            replicas = pool.replicas.values()
            pool.kv_reservation.reserve(replicas, pool.now, waiter.excluded, need)
    return pool.kv_reservation.demands(pool.replicas, pool.now, need)
