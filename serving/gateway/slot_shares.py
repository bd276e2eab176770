"""This gateway's share of each replica's slots: the fleet is told all the time what there is to do.

Until the fleet has answered once it takes none, and where the fleet cannot be asked, an even part,
by the gateways that control counts. A gateway that the fleet does not answer any more keeps its
last share.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from itertools import chain, islice

import aiohttp
import structlog

from serving.contract.ids import new_id
from serving.contract.replica import ReplicaRecord
from serving.contract.slot_shares import (
    ORGANIZATIONS_MAX,
    DemandReport,
    DeploymentDemand,
    OrganizationDemand,
    ReplicaUsage,
    SlotSharesReply,
)
from serving.contract.tiers import DEFAULT_GUARANTEES
from serving.contract.units import Tier
from serving.internal_http import InternalCallError, InternalHttpClient
from serving.pool.pool import Pool
from serving.pool.queue import Waiter
from serving.pool.tier_queue import TierQueue

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS = 0.25
ASK_SECONDS = 1.0
LEAVE_SECONDS = 0.5


class GrantedSlots:
    """What the fleet granted; `of` is what pools go by. `gateways` tells how many there are, as
    control knows."""

    def __init__(self, gateways: Callable[[], int]) -> None:
        self.live_gateway_count = 1
        self.has_reply = False
        self.is_unanswered = False
        """Whether the fleet could not be asked and never answered."""
        self._shares: dict[str, int] = {}
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
        self._shares, self.has_reply, self.is_unanswered = reply.shares, True, False
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

    def wake(self) -> None:
        """Something changed: the fleet is told soon."""
        self._wake.set()

    async def run(self) -> None:
        """Report for ever: when something changed, often while anything runs, and now and then. A
        share that shrank is confirmed at once: until then nobody else has its slots."""
        while True:
            self._wake.clear()
            if await self.report():
                await self.report()
            await asyncio.sleep(self._report_seconds)
            if all(pool.is_idle for pool in self._pools().values()):
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS - self._report_seconds):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def report(self) -> bool:
        """Tell the fleet what there is to do, and go by what it says; tell whether a share
        shrank."""
        pools = self._pools()
        demands = {id_: demand_of(pool) for id_, pool in pools.items()}
        try:
            reply = await self._post(demands, ASK_SECONDS)
        except InternalCallError as error:
            self._note_failure(error)
            return False
        if self.failures:
            log.info("fleet_answers", after=self.failures)
            self.failures = 0
        has_shrunk = self._shares.apply(reply)
        for deployment_id, pool in pools.items():
            pool.set_engine_loads(reply.strains)
            parts, tiers = reply.parts.get(deployment_id, {}), reply.tiers.get(deployment_id)
            pool.set_shares(parts, tiers, {**DEFAULT_GUARANTEES, **reply.guarantees})
        return has_shrunk

    async def send_leaving(self) -> None:
        """Give all slots back: nothing runs here any more."""
        try:
            await self._post({}, LEAVE_SECONDS, is_leaving=True)
        except InternalCallError as error:
            log.warning("slots_left_to_time_out", error=str(error))

    def _note_failure(self, error: InternalCallError) -> None:
        self.failures += 1
        if self.failures == 1:
            log.warning("fleet_divides_no_slots", error=str(error))
        for pool in self._pools().values():
            pool.set_engine_loads({})
        if not self._shares.has_reply:
            self._shares.is_unanswered = True
            # Each time: there may be more gateways by now, or fewer.
            for pool in self._pools().values():
                pool.set_shares({})

    async def _post(
        self, demands: dict[str, DeploymentDemand], seconds: float, *, is_leaving: bool = False
    ) -> SlotSharesReply:
        self._number += 1
        report = DemandReport(self._gateway_id, self._number, demands, is_leaving, self._run_id)
        return await self._fleet.post("demand", report, SlotSharesReply, seconds)


def demand_of(pool: Pool) -> DeploymentDemand:
    """Return what a pool has to do, and what it holds. A tier in use for which `batch` leaves slots
    free is named without any organization too."""
    held = {
        id_: ReplicaUsage(one.share, one.in_flight, one.may_exceed or one.is_exceeded)
        for id_, one in pool.replicas.items()
    }
    tiers: dict[Tier, dict[str, OrganizationDemand]] = {tier: {} for tier in pool.urgent_tiers}
    for tier, line in pool.queue.tier_queues.items():
        if organizations := _organizations(line):
            tiers[tier] = organizations
    wants = pool.queue.has_multi_sequence_waiter or pool.kv_reservation.wants_to_exceed
    return DeploymentDemand(held, tiers, wants)


def _organizations(line: TierQueue[Waiter]) -> dict[str, OrganizationDemand]:
    """Return what organizations have to do, those that pay first: of more they stand for all."""
    tenants = list(line.busy())
    paying = ((one, True) for one in tenants if one.within is None)
    never_paid = ((one, False) for all_ in tenants if all_.within for one in all_.within.busy())
    return {
        one.tenant_id: OrganizationDemand(one.weight, one.running, one.waiting, is_paying)
        for one, is_paying in islice(chain(paying, never_paid), ORGANIZATIONS_MAX)
    }
