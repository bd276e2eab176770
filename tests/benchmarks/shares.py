"""What a share report costs: the gateway that makes it, and the fleet that divides slots anew."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import mean
from typing import Any

import msgspec

from serving.contract.codec import decode, encode
from serving.contract.replica import ReplicaRecord
from serving.contract.slot_shares import (
    DemandReport,
    DeploymentDemand,
    OrganizationDemand,
    ReplicaUsage,
    SlotSharesReply,
)
from serving.fleet.slot_shares import SlotAllocator
from serving.gateway.slot_shares import DemandReporter, GrantedSlots
from serving.pool.pool import Pool
from serving.pool.queue import SlotGrant, Waiter
from serving.pool.slot_request import SlotRequest
from serving.pool.tier_queue import QueueLimits
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import pinned
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, percentile
from tests.fixtures.catalog import replica

GATEWAYS, DEPLOYMENTS, ORGANIZATIONS = 10, 10, 1_000
REPLICAS, SLOTS = 10, 64
"""Of each deployment, and of each replica."""
REPORTS_A_SECOND = 5
ENDS = 5
"""Requests of a deployment that end at a gateway between two reports; as many begin and come."""
REPORTS = 40
"""Of each gateway in a round, after"""
FIRST_REPORTS = 3
"""by which all is known everywhere."""
BOUNDS = QueueLimits(requests=4 * ORGANIZATIONS)
SESSION: Any = None
"""Of which nothing is asked."""
TITLE = (
    f"Share reports: {GATEWAYS} gateways, {DEPLOYMENTS} deployments of {REPLICAS} replicas,"
    f" {ORGANIZATIONS:,} organizations waiting for each at each gateway"
)
REMARKS = (
    f"Between two reports of a gateway {ENDS} requests of each deployment end, {ENDS} begin and"
    f" {ENDS} come: {ENDS * DEPLOYMENTS * GATEWAYS * REPORTS_A_SECOND:,} requests a second in all.",
    "One gateway is real, its queues full; the others are what they report. All in one process,"
    " by CPU time: the fleet decodes, divides and encodes; HTTP is not in it.",
    f"A share of a core is the mean CPU time of a report times {GATEWAYS * REPORTS_A_SECOND} a"
    " second.",
)


@dataclass
class Costs:
    """CPU milliseconds of each report: at the fleet, to make at the gateway, and all of what it
    takes there. `first_ms` are those of the real gateway's first report, which names all."""

    fleet_ms: list[float] = field(default_factory=list)
    making_ms: list[float] = field(default_factory=list)
    gateway_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    report_bytes: list[int] = field(default_factory=list)
    reply_bytes: list[int] = field(default_factory=list)

    def clear(self) -> None:
        """Forget all but the first."""
        for each in (self.fleet_ms, self.making_ms, self.gateway_ms):
            each.clear()
        self.report_bytes.clear()
        self.reply_bytes.clear()


class Fleet:
    """Divides slots by a clock on which ten gateways report five times a second."""

    def __init__(self, slots: Mapping[str, Mapping[str, int]], costs: Costs) -> None:
        self._shares = SlotAllocator(epoch=1)
        self._slots = slots
        self.costs = costs
        self._now = 0.0

    def answer(self, data: bytes) -> bytes:
        """Return the reply to a report."""
        self._now += 1 / (GATEWAYS * REPORTS_A_SECOND)
        begun = time.process_time()
        report = decode(data, DemandReport)
        reply = self._shares.report(report, self._slots, self._now)
        told = encode(reply)
        self.costs.fleet_ms.append(1e3 * (time.process_time() - begun))
        if not reply.number:
            raise BenchmarkFailed(f"the report {report.number} was not taken in")
        self.costs.report_bytes.append(len(data))
        self.costs.reply_bytes.append(len(told))
        return told


class Reporter(DemandReporter):
    """Asks the fleet without HTTP."""

    def __init__(self, fleet: Fleet, shares: GrantedSlots, pools: Mapping[str, Pool]) -> None:
        super().__init__(
            *(SESSION, "http://fleet", ""),
            gateway_id="gw_real",
            shares=shares,
            pools=lambda: pools,
            report_seconds=1 / REPORTS_A_SECOND,
        )
        self._to = fleet
        self._begun = self._fleet_ms = 0.0

    async def measure(self) -> None:
        """Report, and note the milliseconds to make the report, and all of them but the fleet's."""
        self._begun = time.process_time()
        await self.report()
        total = 1e3 * (time.process_time() - self._begun)
        self._to.costs.gateway_ms.append(total - self._fleet_ms)

    async def _post(self, report: DemandReport, seconds: float) -> SlotSharesReply:
        data = encode(report)
        asked = time.process_time()
        self._to.costs.making_ms.append(1e3 * (asked - self._begun))
        told = self._to.answer(data)
        self._fleet_ms = 1e3 * (time.process_time() - asked)
        return decode(told, SlotSharesReply)


class RealGateway:
    """A gateway's pools, in which requests wait, begin and end."""

    def __init__(self, records: Mapping[str, list[ReplicaRecord]], fleet: Fleet) -> None:
        self.shares = GrantedSlots(lambda: GATEWAYS)
        self.pools = {
            id_: Pool(
                id_, bounds=BOUNDS, share_of=self.shares.of, may_exceed=self.shares.may_exceed
            )
            for id_ in records
        }
        self.reporter = Reporter(fleet, self.shares, self.pools)
        self._waiters: dict[str, list[Waiter]] = {id_: [] for id_ in records}
        self._random = Random(1)
        for id_, own in records.items():
            self.pools[id_].set_replicas({record.replica_id: record for record in own})
            for number in range(ORGANIZATIONS):
                self._join(id_, number)

    def step(self) -> None:
        """End some requests of each deployment, and have others come."""
        for id_, pool in self.pools.items():
            grants = [one for one in self._waiters[id_] if one.result.done()]
            for one in self._random.sample(grants, min(ENDS, len(grants))):
                self._waiters[id_].remove(one)
                grant = one.result.result()
                if not isinstance(grant, SlotGrant):
                    raise BenchmarkFailed(f"a request was refused: {grant}")
                pool.free(grant)
            for _ in range(ENDS):
                self._join(id_, self._random.randrange(ORGANIZATIONS))

    def _join(self, deployment_id: str, number: int) -> None:
        request = SlotRequest(f"org_{number}", seconds_max=1e6)
        self._waiters[deployment_id].append(self.pools[deployment_id].queue.join(request, ()))


class OtherGateway:
    """What a gateway reports whose organizations wait too."""

    def __init__(self, number: int, records: Mapping[str, list[ReplicaRecord]]) -> None:
        self.gateway_id = f"gw_{number}"
        self._random = Random(number)
        self._number = 0
        self._shares: dict[str, int] = {}
        self._records = records
        self._demands = {
            id_: {
                f"org_{n}": OrganizationDemand(1, 0, self._random.randint(1, 2))
                for n in range(ORGANIZATIONS)
            }
            for id_ in records
        }

    def report(self, fleet: Fleet) -> None:
        """Tell the fleet what changed, or at first all."""
        self._number += 1
        base = self._number - 1
        demands = {
            id_: DeploymentDemand(self._held(id_), {"default": self._changed(id_, is_all=not base)})
            for id_ in self._records
        }
        report = DemandReport(self.gateway_id, self._number, demands, base=base)
        self._shares = decode(fleet.answer(encode(report)), SlotSharesReply).shares

    def _held(self, deployment_id: str) -> dict[str, ReplicaUsage]:
        ids = [record.replica_id for record in self._records[deployment_id]]
        return {id_: ReplicaUsage(own := self._shares.get(id_, 0), own) for id_ in ids}

    def _changed(self, deployment_id: str, *, is_all: bool) -> dict[str, OrganizationDemand]:
        demands = self._demands[deployment_id]
        if is_all:
            return demands
        names = self._random.sample(sorted(demands), 3 * ENDS)
        for place, name in enumerate(names):
            one = demands[name]
            running, waiting = one.running, one.waiting
            if place < ENDS:
                waiting += waiting < 3
            elif place < 2 * ENDS:
                running, waiting = running + (waiting > 0), waiting - (waiting > 0)
            else:
                running -= running > 0
            demands[name] = msgspec.structs.replace(one, running=running, waiting=waiting)
        return {name: demands[name] for name in names}


def measure(plan: Plan) -> Table:
    """Return what reports cost, by CPU time."""
    with pinned(plan.split.measured):
        rounds = [asyncio.run(_round()) for _ in range(plan.rounds)]
    checks = [f"each of {sum(len(r.fleet_ms) for r in rounds):,} reports was taken in"]
    return Table(TITLE, list(_rows(rounds)), checks, REMARKS)


async def _round() -> Costs:
    records = {
        f"dep_{d}": [
            msgspec.structs.replace(
                replica("http://r", slots=SLOTS),
                replica_id=f"rep_{d}_{r}",
                deployment_id=f"dep_{d}",
            )
            for r in range(REPLICAS)
        ]
        for d in range(DEPLOYMENTS)
    }
    slots = {id_: {one.replica_id: one.slots for one in own} for id_, own in records.items()}
    costs = Costs()
    fleet = Fleet(slots, costs)
    real = RealGateway(records, fleet)
    others = [OtherGateway(number, records) for number in range(1, GATEWAYS)]
    for _ in range(FIRST_REPORTS):
        await _report(real, others, fleet)
    costs.first_ms += [costs.making_ms[0], costs.fleet_ms[0]]
    costs.clear()
    for _ in range(REPORTS):
        await _report(real, others, fleet)
    return costs


async def _report(real: RealGateway, others: Sequence[OtherGateway], fleet: Fleet) -> None:
    await real.reporter.measure()
    for other in others:
        other.report(fleet)
    real.step()


def _rows(rounds: Sequence[Costs]) -> Iterator[Row]:
    yield Row("report at the fleet, mean", "fleet", "ms", [mean(r.fleet_ms) for r in rounds])
    yield Row("the same, p99", "fleet", "ms", [percentile(r.fleet_ms, 99) for r in rounds])
    yield Row("share of a core", "fleet", "%", [_share(r.fleet_ms) for r in rounds])
    yield Row("to make a report, mean", "gateway", "ms", [mean(r.making_ms) for r in rounds])
    yield Row("the same, p99", "gateway", "ms", [percentile(r.making_ms, 99) for r in rounds])
    yield Row("to make it and take in the reply, mean", "gateway", "ms", [
        mean(r.gateway_ms) for r in rounds
    ])  # fmt: skip
    yield Row("first report, which names all", "gateway", "ms", [r.first_ms[0] for r in rounds])
    yield Row("the same", "fleet", "ms", [r.first_ms[1] for r in rounds])
    yield Row("size of a report", "gateway", "bytes", [mean(r.report_bytes) for r in rounds])
    yield Row("size of a reply", "fleet", "bytes", [mean(r.reply_bytes) for r in rounds])


def _share(milliseconds: Sequence[float]) -> float:
    return mean(milliseconds) * GATEWAYS * REPORTS_A_SECOND / 10
