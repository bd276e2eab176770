"""Which gateway may take how many slots of which replica, and how many tokens of its KV cache:
granted when free, taken back in order.

A share that shrinks is free for others only once its gateway has said that it keeps to the
smaller one and how much it still runs. So the shares in force and what runs beyond them are
never more than a replica's slots, whatever is lost on the way. Beyond it are only a request of
several choices that began at the last free slot (`serving.pool.replicas`), of one gateway at a
time, and a gateway that was not heard of for five seconds and lives on.

The tokens of a KV cache follow the slots by the same rule. A request that is larger than its
gateway's part needs a permit for all that it takes. There is one at a time for each replica;
gateways take turns, and meanwhile all have their parts of what it leaves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from serving.contract.slot_shares import (
    NEVER_PAID,
    DemandReport,
    DeploymentDemand,
    KvDemand,
    KvGrant,
    SlotSharesReply,
)
from serving.contract.tiers import (
    DEFAULT_GUARANTEES,
    Guarantees,
)
from serving.contract.units import Tier
from serving.fleet.demand_totals import DemandTotals
from serving.fleet.slot_division import (
    Shares,
    TierDues,
    TierPolicy,
    assign,
    due_by_tier,
    kv_parts,
    never_paid_parts,
    tier_parts,
    whole_quotas,
)

GATEWAY_SECONDS = 5.0
"""Who was not heard of for so long is gone, and its slots are free."""
GRACE_SECONDS = 2.0
"""For which a fleet that finds replicas at work takes no slot for free: their gateways will say."""
REDIVIDE_SECONDS = 0.05
TURN_SECONDS = 1.0
"""For which a gateway keeps a slot where there are too few for all."""
NAMES_KEPT_MAX = 10_000
NEVER = float("-inf")

Slots = Mapping[str, Mapping[str, int]]
"""By deployment, the slots of each replica that may be given work."""


@dataclass(slots=True)
class KvLease:
    """What a gateway said of one KV cache, and the most tokens that its requests may hold there
    now: `may_hold`, and the `permit` of one that is larger than its share."""

    demand: KvDemand
    may_hold: int
    permit: int


@dataclass(slots=True)
class GatewayDemand:
    """What a gateway last said; `may_run` is by replica the most that it may have there now, but
    for what a request of several choices takes beyond it where it `may_exceed` that. `turn_at` is
    when it was last allowed to, and `permit_at` when it was last given a permit for a KV cache.
    `parted` are by deployment the organizations that it was told to have only a part of. Of what
    organizations need only the sums are kept (`DemandTotals`)."""

    heard_at: float
    number: int
    deployments: Mapping[str, DeploymentDemand]
    may_run: dict[str, int] = field(default_factory=dict)
    may_exceed: set[str] = field(default_factory=set)
    turn_at: dict[str, float] = field(default_factory=dict)
    kv: dict[str, KvLease] = field(default_factory=dict)
    permit_at: dict[str, float] = field(default_factory=dict)
    parted: dict[str, set[str]] = field(default_factory=dict)
    life: str = ""
    life_before: str = ""

    def is_late(self, report: DemandReport) -> bool:
        """Tell whether a report was made before what it said last."""
        if report.life == self.life:
            return report.number <= self.number
        return report.life != "" and report.life == self.life_before

    def is_base(self, report: DemandReport) -> bool:
        """Tell whether a report says what changed since what it said last."""
        return report.life == self.life and report.base == self.number


@dataclass(slots=True)
class SlotDivision:
    """How a deployment's slots were divided last."""

    at: float = float("-inf")
    of: object = None
    """What it follows from: the same again gives the same."""
    slots: Mapping[str, int] = field(default_factory=dict)
    quota: dict[str, int] = field(default_factory=dict)
    shares: Shares = field(default_factory=dict)
    by_tier: TierDues = field(default_factory=dict)
    never_paid: Mapping[str, float] = field(default_factory=dict)
    """Which part of the slots of all organizations that never paid each gateway is due."""


class SlotAllocator:
    """All live gateways and what they were granted, by the guarantees of tiers and what each
    deployment keeps free of `batch`. `now` is monotonic seconds throughout."""

    def __init__(
        self,
        *,
        epoch: int,
        grace_until: float = 0.0,
        guarantees: Guarantees = DEFAULT_GUARANTEES,
        reserved_share: Callable[[str], float] = lambda deployment_id: 0.1,
    ) -> None:
        self.epoch = epoch
        self.gateways: dict[str, GatewayDemand] = {}
        self._names: dict[str, str] = {}
        self.grace_until = grace_until
        """Until then slots may be in use that no gateway has reported yet: none is granted anew."""
        self._guarantees = guarantees
        self._reserved_share = reserved_share
        self._totals: dict[str, DemandTotals] = {}
        self._divisions: dict[str, SlotDivision] = {}

    def name_of(self, gateway_id: str, claimed: str) -> str:
        """Return by which name a gateway was first heard of in our life; by the one that is claimed
        where it was not. Of those who are gone not all are remembered."""
        name = self._names.setdefault(gateway_id, claimed)
        if len(self._names) > NAMES_KEPT_MAX:
            del self._names[next(id_ for id_ in self._names if id_ not in self.gateways)]
        return name

    def report(self, report: DemandReport, slots: Slots, now: float) -> SlotSharesReply:
        """Take in what a gateway has to do, and return what it may take from now on."""
        self.forget_silent(now)
        known = self.gateways.get(report.gateway_id)
        if known is not None and known.is_late(report):
            return self._empty_reply()
        if report.is_leaving:
            self._forget(report.gateway_id)
            return self._empty_reply()
        if report.base and not (known is not None and known.is_base(report)):
            return self._empty_reply()
        self._add_up(report, {} if known is None else known.deployments)
        held = {
            replica_id: held
            for demand in report.deployments.values()
            for replica_id, held in demand.held.items()
        }
        self.gateways[report.gateway_id] = GatewayDemand(
            *(now, report.number, report.deployments),
            may_run={id_: max(one.share, one.running) for id_, one in held.items()},
            may_exceed={id_ for id_, one in held.items() if one.may_exceed},
            turn_at={} if known is None else known.turn_at,
            kv={
                id_: KvLease(kv, max(kv.share, kv.held), kv.permit)
                for id_, one in held.items()
                if (kv := one.kv) is not None
            },
            permit_at={} if known is None else known.permit_at,
            parted=known.parted if known is not None and report.base else {},
            life=report.life,
            life_before=_life_before(known, report.life),
        )
        return self._reply(report, slots, now)

    def forget_silent(self, now: float) -> None:
        """Free the slots of gateways that are not heard of any more."""
        for gateway_id, gateway in list(self.gateways.items()):
            if now - gateway.heard_at > GATEWAY_SECONDS:
                self._forget(gateway_id)

    def in_use(self, gateway_id: str) -> list[str]:
        """Return the deployments for which anything waits or runs at a gateway."""
        gateway = self.gateways.get(gateway_id)
        known = () if gateway is None else gateway.deployments
        return [id_ for id_ in known if self._totals[id_].needs(gateway_id)]

    def granted(self, replica_id: str) -> int:
        """Return how many slots of a replica are taken, or may be at any moment."""
        return sum(gateway.may_run.get(replica_id, 0) for gateway in self.gateways.values())

    def _add_up(self, report: DemandReport, before: Mapping[str, DeploymentDemand]) -> None:
        for deployment_id in before.keys() - report.deployments.keys():
            self._subtract(report.gateway_id, deployment_id)
        for deployment_id, demand in report.deployments.items():
            totals = self._totals.setdefault(deployment_id, DemandTotals())
            totals.apply(report.gateway_id, demand, is_whole=not report.base)

    def _subtract(self, gateway_id: str, deployment_id: str) -> None:
        totals = self._totals[deployment_id]
        totals.remove(gateway_id)
        if not totals.gateways:
            del self._totals[deployment_id]
            self._divisions.pop(deployment_id, None)

    def _forget(self, gateway_id: str) -> None:
        gateway = self.gateways.pop(gateway_id, None)
        for deployment_id in () if gateway is None else gateway.deployments:
            self._subtract(gateway_id, deployment_id)

    def _empty_reply(self) -> SlotSharesReply:
        return SlotSharesReply(self.epoch, {}, live_gateway_count=max(1, len(self.gateways)))

    def _reply(self, report: DemandReport, slots: Slots, now: float) -> SlotSharesReply:
        gateway = self.gateways[report.gateway_id]
        shares: dict[str, int] = {}
        parts: dict[str, dict[str, float]] = {}
        tiers: dict[str, dict[Tier, float]] = {}
        may_exceed: list[str] = []
        kv: dict[str, KvGrant] = {}
        for deployment_id, demand in report.deployments.items():
            own_slots = slots.get(deployment_id, {})
            due = self._divide(deployment_id, own_slots, now)
            is_wanted = self._is_exceeding_wanted(gateway, deployment_id)
            for replica_id in own_slots.keys() & demand.held.keys():
                told = due.get(replica_id, {}).get(report.gateway_id, 0)
                held = demand.held[replica_id]
                if told > held.share:
                    free = 0 if now < self.grace_until else own_slots[replica_id]
                    free -= self.granted(replica_id) - gateway.may_run[replica_id]
                    told = max(held.share, min(told, free))
                gateway.may_run[replica_id] = max(held.share, held.running, told)
                shares[replica_id] = told
                if replica_id in gateway.kv:
                    own_due = due.get(replica_id, {})
                    kv[replica_id] = self._kv_grant(gateway, replica_id, own_due, now)
                if is_wanted and self._may_exceed(gateway, deployment_id, replica_id, now):
                    if replica_id not in gateway.may_exceed:
                        gateway.may_exceed.add(replica_id)
                        gateway.turn_at[replica_id] = now
                    may_exceed.append(replica_id)
            if found := self._parts(gateway, report.gateway_id, deployment_id):
                parts[deployment_id] = found
            by_tier, totals = self._divisions[deployment_id].by_tier, self._totals[deployment_id]
            if by_tier and (kept := tier_parts(by_tier, report.gateway_id, totals)):
                tiers[deployment_id] = kept
        return SlotSharesReply(
            *(self.epoch, shares, parts, len(self.gateways)),
            tiers=tiers,
            guarantees=dict(self._guarantees),
            may_exceed=tuple(may_exceed),
            kv=kv,
            number=report.number,
        )

    def _parts(
        self, gateway: GatewayDemand, gateway_id: str, deployment_id: str
    ) -> dict[str, float]:
        """Return the parts that a gateway is to be told of now: of what changed there, and where
        what all need has moved."""
        totals = self._totals[deployment_id]
        never_paid = self._divisions[deployment_id].never_paid
        if not (totals.needs(gateway_id) or deployment_id in gateway.parted):
            return {}
        parts = totals.take_parts(gateway_id)
        parts[NEVER_PAID] = never_paid.get(gateway_id, 1.0)
        parted = gateway.parted.setdefault(deployment_id, set())
        found = {one: part for one, part in parts.items() if part < 1.0 or one in parted}
        for one, part in found.items():
            (parted.add if part < 1.0 else parted.discard)(one)
        return found

    def _kv_grant(
        self, gateway: GatewayDemand, replica_id: str, slots: Mapping[str, int], now: float
    ) -> KvGrant:
        """Return what a gateway may have of a KV cache: its part of what a permit leaves, by its
        `slots`, and the permit where that is its turn, once others leave it room."""
        leases = {
            id_: lease
            for id_, one in self.gateways.items()
            if (lease := one.kv.get(replica_id)) is not None
        }
        own = gateway.kv[replica_id]
        demand, permits = own.demand, sum(lease.permit for lease in leases.values())
        turn = None if permits else self._permit_turn(replica_id)
        wanted = 0 if turn is None else min(demand.capacity, turn.kv[replica_id].demand.wanted)
        parts = kv_parts(
            max(0, demand.capacity - permits - wanted),
            {id_: slots.get(id_, 0) for id_ in leases},
            {id_: lease.demand.held for id_, lease in leases.items()},
        )
        taken = sum(lease.may_hold for lease in leases.values() if lease is not own)
        free = 0 if now < self.grace_until else demand.capacity - permits - taken
        share = next(part for id_, part in parts.items() if leases[id_] is own)
        if share > demand.share:
            share = max(demand.share, min(share, free))
        own.may_hold = max(demand.share, demand.held, share)
        if turn is gateway and wanted <= free - own.may_hold:
            own.permit = wanted
            gateway.permit_at[replica_id] = now
        is_taken = permits > own.permit or (turn is not None and turn is not gateway)
        return KvGrant(share, own.permit, is_taken)

    def _permit_turn(self, replica_id: str) -> GatewayDemand | None:
        """Return which gateway has the next permit for a replica's KV cache: of those that want
        one, who had none for longest."""
        wanting = [
            one
            for one in self.gateways.values()
            if (lease := one.kv.get(replica_id)) is not None and lease.demand.wanted
        ]
        return min(wanting, key=lambda one: one.permit_at.get(replica_id, NEVER), default=None)

    def _is_exceeding_wanted(self, gateway: GatewayDemand, deployment_id: str) -> bool:
        """Tell whether anybody wants to take more of a replica than its share, or this gateway may
        already, or is alone."""
        return (
            len(self.gateways) == 1
            or bool(gateway.may_exceed)
            or gateway.deployments[deployment_id].wants_to_exceed
        )

    def _may_exceed(
        self, gateway: GatewayDemand, deployment_id: str, replica_id: str, now: float
    ) -> bool:
        """Tell whether a gateway may take more of a replica than its share: where no other may. It
        keeps that until another wants it; those that want it take turns."""
        others = [other for other in self.gateways.values() if other is not gateway]
        if now < self.grace_until or any(replica_id in other.may_exceed for other in others):
            return False
        turns = [
            other.turn_at.get(replica_id, NEVER)
            for other in others
            if (demand := other.deployments.get(deployment_id)) and demand.wants_to_exceed
        ]
        may, turn = replica_id in gateway.may_exceed, gateway.turn_at.get(replica_id, NEVER)
        wants = gateway.deployments[deployment_id].wants_to_exceed
        if not turns:
            return wants or may or not others
        return wants and (now - turn < TURN_SECONDS if may else turn <= min(turns))

    def _divide(self, deployment_id: str, slots: Mapping[str, int], now: float) -> Shares:
        """Return who is due what, divided anew if anything changed since a moment."""
        demands = self._totals[deployment_id]
        last = self._divisions.setdefault(deployment_id, SlotDivision())
        total = sum(slots.values())
        turn = int(now / TURN_SECONDS) if total < len(demands.gateways) else 0
        reserved_share = self._reserved_share(deployment_id)
        of = demands.version, turn, reserved_share
        is_same = last.slots == slots and last.quota.keys() == demands.gateways
        if is_same and (last.of == of or now - last.at < REDIVIDE_SECONDS):
            return last.shares
        policy = TierPolicy(self._guarantees, reserved_share)
        by_tier = due_by_tier(total, demands, policy)
        quota = whole_quotas(total, by_tier, demands, last.quota, turn=turn)
        is_moved = not is_same or quota != last.quota
        shares = assign(quota, slots, last.shares) if is_moved else last.shares
        self.epoch += shares != last.shares
        self._divisions[deployment_id] = SlotDivision(
            *(now, of, dict(slots), quota, shares, by_tier),
            never_paid_parts(total, demands, policy),
        )
        return shares


def _life_before(known: GatewayDemand | None, life: str) -> str:
    """Return which life of a gateway ended when this one began, of those heard of lately."""
    if known is None:
        return ""
    return known.life_before if known.life == life else known.life
