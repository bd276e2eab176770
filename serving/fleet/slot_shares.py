"""Which gateway may take how many slots of which replica: divided by what organizations need,
granted when free, taken back in order.

Slots go to tiers first (`serving.contract.tiers`). Within a tier they go to organizations: to
each what it needs, and where that is more than there is, by their weights (max-min). An
organization counts once however many gateways it comes through; there its slots follow its
requests. All organizations that never paid count as one, and divide what it is due. What nobody
needs, and what is kept free of `batch`, is divided evenly, so that whoever comes next finds a slot.

A share that shrinks is free for others only once its gateway has said that it keeps to the
smaller one and how much it still runs. So the shares in force and what runs beyond them are
never more than a replica's slots, whatever is lost on the way. Beyond it are only a request of
several choices that began at the last free slot (`serving.pool.replicas`), of one gateway at a
time, and a gateway that was not heard of for five seconds and lives on.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from math import ceil, floor
from typing import NamedTuple

from serving.contract.slot_shares import (
    NEVER_PAID,
    DemandReport,
    DeploymentDemand,
    OrganizationDemand,
    SlotSharesReply,
)
from serving.contract.tiers import (
    DEFAULT_GUARANTEES,
    URGENT,
    Guarantees,
    divide,
    fill,
    reserved_slots,
)
from serving.contract.units import TIERS, Tier

Demands = Mapping[str, DeploymentDemand]
"""What each gateway has to do for one deployment."""
Shares = dict[str, dict[str, int]]
"""By replica, each gateway's slots."""
TierDues = Mapping[Tier, Mapping[str, float]]
"""By tier, the slots that each gateway is due for it."""
ROUNDING = 1e-6
GOLDEN_RATIO = 0.6180339887498949
"""Its multiples fall evenly between whole numbers, however many of them there are."""


class TierPolicy(NamedTuple):
    """What tiers are guaranteed, and how much of all slots is kept free of `batch` for each urgent
    one in use."""

    guarantees: Guarantees = DEFAULT_GUARANTEES
    reserved_share: float = 0.1


USUAL = TierPolicy()


def quotas(
    slots: int,
    demands: Demands,
    before: Mapping[str, int],
    *,
    turn: int = 0,
    policy: TierPolicy = USUAL,
) -> dict[str, int]:
    """Return how many of so many slots each gateway gets: all of them together, and at least one
    each. Where there are fewer slots than gateways, they take turns, as `turn` grows.

    What is due is a fraction; a gateway keeps the whole number of `before` within one of it.
    """
    by_tier = due_by_tier(slots, demands, policy)
    due = {gateway: sum(own[gateway] for own in by_tier.values()) for gateway in sorted(demands)}
    each = max(0.0, slots - sum(due.values())) / len(due) if due else 0.0
    due = {gateway: own + each for gateway, own in due.items()}
    return _in_turns(due, turn) if slots < len(due) else _rounded(slots, due, before)


def due_by_tier(
    slots: int, demands: Demands, policy: TierPolicy = USUAL, *, of_all: bool = True
) -> dict[Tier, dict[str, float]]:
    """Return what each gateway is due for each tier that anybody needs, or what of it is due for
    organizations that never paid."""
    needs = {tier: _organizations(demands, tier) for tier in TIERS}
    in_use = sum(any(tier in demand.tiers for demand in demands.values()) for tier in URGENT)
    due = divide(
        slots,
        {tier: sum(need for _, need in own.values()) for tier, own in needs.items()},
        policy.guarantees,
        reserved_slots(in_use, policy.reserved_share, slots, slots),
    )
    return {
        tier: _by_organization(given, demands, tier, needs[tier], of_all=of_all)
        for tier, given in due.items()
    }


def tier_parts(by_tier: TierDues, gateway: str, demand: DeploymentDemand) -> dict[Tier, float]:
    """Return which part of a gateway's slots a tier keeps there that needs more than it is due.
    Another keeps what it is guaranteed, so that what comes of it now has its turn."""
    due = {tier: own[gateway] for tier, own in by_tier.items() if tier != "batch"}
    total = sum(due.values())
    return {
        tier: given / total
        for tier, given in due.items()
        if 0.0 < given < sum(_need(one) for one in demand.tiers.get(tier, {}).values()) - ROUNDING
    }


def assign(quota: Mapping[str, int], slots: Mapping[str, int], before: Shares) -> Shares:
    """Return how each gateway's slots are spread over replicas: evenly, and with few moves from
    where they were, since each move waits for a request to end."""
    total = sum(slots.values()) or 1
    shares: Shares = {replica: dict.fromkeys(quota, 0) for replica in slots}
    for replica, own in shares.items():
        for gateway in own:
            cap = ceil(quota[gateway] * slots[replica] / total) + 1
            own[gateway] = min(cap, before.get(replica, {}).get(gateway, 0))
        while sum(own.values()) > slots[replica]:
            own[max(own, key=lambda gateway: own[gateway])] -= 1

    def beyond(gateway: str, replica: str) -> float:
        return shares[replica][gateway] - quota[gateway] * slots[replica] / total

    free = {replica: slots[replica] - sum(own.values()) for replica, own in shares.items()}
    order = list(shares)
    surplus = {
        gateway: sum(own[gateway] for own in shares.values()) - due
        for gateway, due in quota.items()
    }
    for gateway, moves in surplus.items():
        held = _heap(-beyond(gateway, one) if shares[one][gateway] else None for one in order)
        for _ in range(moves):
            place = held[0][1]
            own = shares[order[place]]
            own[gateway] -= 1
            free[order[place]] += 1
            _again(held, -beyond(gateway, order[place]) if own[gateway] else None)
    for gateway, moves in surplus.items():
        room = _heap(beyond(gateway, one) if free[one] else None for one in order)
        for _ in range(-moves):
            place = room[0][1]
            shares[order[place]][gateway] += 1
            free[order[place]] -= 1
            _again(room, beyond(gateway, order[place]) if free[order[place]] else None)
    return shares


def _heap(numbers: Iterable[float | None]) -> list[tuple[float, int]]:
    """Return numbers with their places, but those that are None, the least first."""
    heap = [(number, place) for place, number in enumerate(numbers) if number is not None]
    heapify(heap)
    return heap


def _again(heap: list[tuple[float, int]], number: float | None) -> None:
    """Put the first of a heap where another number belongs; without one, take it out."""
    if number is None:
        heappop(heap)
    else:
        heapreplace(heap, (number, heap[0][1]))


def organization_parts(demands: Demands, gateway: str) -> dict[str, float]:
    """Return which part of its slots an organization has at a gateway, of those that wait there and
    come through others too."""
    here = _needs(demands[gateway])
    others = [_needs(demand) for name, demand in demands.items() if name != gateway]
    found = {}
    for organization in _waiting(demands[gateway]):
        elsewhere = sum(other.get(organization, 0) for other in others)
        if elsewhere:
            found[organization] = here[organization] / (here[organization] + elsewhere)
    return found


def _organizations(demands: Demands, tier: Tier) -> dict[str, tuple[int, int]]:
    """Return the weight and the need of each organization of a tier, over all gateways."""
    needs: dict[str, tuple[int, int]] = {}
    for demand in demands.values():
        for organization, own in demand.tiers.get(tier, {}).items():
            known = needs.get(organization, (own.weight, 0))[1]
            if need := known + _need(own):
                needs[organization] = own.weight, need
    return needs


def _by_organization(
    slots: float,
    demands: Demands,
    tier: Tier,
    needs: Mapping[str, tuple[int, int]],
    *,
    of_all: bool,
) -> dict[str, float]:
    """Return what each gateway is due for one tier."""
    never_paid = _never_paid(demands, tier)
    tenants, shared = dict[str, tuple[int, int]](), dict[str, tuple[int, int]]()
    for organization, each in needs.items():
        (shared if organization in never_paid else tenants)[organization] = each
    tenants[NEVER_PAID] = 1, sum(need for _, need in shared.values())
    given = fill(slots, tenants)
    given |= fill(given.pop(NEVER_PAID), shared)
    due = dict.fromkeys(demands, 0.0)
    for gateway, demand in demands.items():
        for organization, own in demand.tiers.get(tier, {}).items():
            if (need := _need(own)) and (of_all or organization in shared):
                due[gateway] += given[organization] * need / needs[organization][1]
    return due


def _never_paid(demands: Demands, tier: Tier) -> set[str]:
    return {
        organization
        for demand in demands.values()
        for organization, own in demand.tiers.get(tier, {}).items()
        if not own.is_paying
    }


def never_paid_parts(slots: int, demands: Demands, policy: TierPolicy = USUAL) -> dict[str, float]:
    """Return which part of the slots of all organizations that never paid each gateway is due."""
    if not any(_never_paid(demands, tier) for tier in TIERS):
        return {}
    by_tier = due_by_tier(slots, demands, policy, of_all=False).values()
    due = {gateway: sum(own[gateway] for own in by_tier) for gateway in demands}
    total = sum(due.values())
    return {gateway: own / total for gateway, own in due.items() if own}


def _rounded(slots: int, due: Mapping[str, float], before: Mapping[str, int]) -> dict[str, int]:
    whole = {
        gateway: max(1, before[gateway] if _is_near(before.get(gateway), x) else floor(x))
        for gateway, x in due.items()
    }
    for _ in range(sum(whole.values()) - slots):
        most = max((g for g in whole if whole[g] > 1), key=lambda g: whole[g] - due[g])
        whole[most] -= 1
    for _ in range(slots - sum(whole.values())):
        least = max(whole, key=lambda g: due[g] - whole[g])
        whole[least] += 1
    return whole


def _is_near(whole: int | None, due: float) -> bool:
    return whole is not None and abs(whole - due) < 1.0


def _in_turns(due: Mapping[str, float], turn: int) -> dict[str, int]:
    """Return whole numbers of slots whose mean over many turns is what is due (systematic
    sampling)."""
    given, mark = {}, (turn + 0.5) * GOLDEN_RATIO % 1.0
    for gateway, slots in due.items():
        given[gateway] = floor(mark + slots) - floor(mark)
        mark += slots
    return given


def _need(demand: OrganizationDemand) -> int:
    return demand.running + demand.waiting


def _needs(demand: DeploymentDemand) -> dict[str, int]:
    needs: dict[str, int] = {}
    for organizations in demand.tiers.values():
        for organization, own in organizations.items():
            needs[organization] = needs.get(organization, 0) + _need(own)
    return needs


def _waiting(demand: DeploymentDemand) -> set[str]:
    return {
        organization
        for organizations in demand.tiers.values()
        for organization, own in organizations.items()
        if own.waiting
    }


GATEWAY_SECONDS = 5.0
"""Who was not heard of for so long is gone, and its slots are free."""
GRACE_SECONDS = 2.0
"""For which a fleet that finds replicas at work takes no slot for free: their gateways will say."""
REDIVIDE_SECONDS = 0.1
TURN_SECONDS = 1.0
"""For which a gateway keeps a slot where there are too few for all."""
NAMES_KEPT_MAX = 10_000
NEVER = float("-inf")

Slots = Mapping[str, Mapping[str, int]]
"""By deployment, the slots of each replica that may be given work."""


@dataclass(slots=True)
class GatewayDemand:
    """What a gateway last said; `may_run` is by replica the most that it may have there now, but
    for what a request of several choices takes beyond it where it `may_exceed` that. `turn_at` is
    when it was last allowed to."""

    heard_at: float
    number: int
    deployments: Mapping[str, DeploymentDemand]
    may_run: dict[str, int] = field(default_factory=dict)
    may_exceed: set[str] = field(default_factory=set)
    turn_at: dict[str, float] = field(default_factory=dict)
    life: str = ""
    life_before: str = ""

    def is_late(self, report: DemandReport) -> bool:
        """Tell whether a report was made before what it said last."""
        if report.life == self.life:
            return report.number <= self.number
        return report.life != "" and report.life == self.life_before


@dataclass(slots=True)
class SlotDivision:
    """How a deployment's slots were divided last."""

    at: float = float("-inf")
    among: frozenset[str] = frozenset()
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
        self._grace_until = grace_until
        self._guarantees = guarantees
        self._reserved_share = reserved_share
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
            self.gateways.pop(report.gateway_id, None)
            return self._empty_reply()
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
            life=report.life,
            life_before=_life_before(known, report.life),
        )
        return self._reply(report, slots, now)

    def forget_silent(self, now: float) -> None:
        """Free the slots of gateways that are not heard of any more."""
        for gateway_id, gateway in list(self.gateways.items()):
            if now - gateway.heard_at > GATEWAY_SECONDS:
                del self.gateways[gateway_id]

    def granted(self, replica_id: str) -> int:
        """Return how many slots of a replica are taken, or may be at any moment."""
        return sum(gateway.may_run.get(replica_id, 0) for gateway in self.gateways.values())

    def _empty_reply(self) -> SlotSharesReply:
        return SlotSharesReply(self.epoch, {}, live_gateway_count=max(1, len(self.gateways)))

    def _reply(self, report: DemandReport, slots: Slots, now: float) -> SlotSharesReply:
        gateway = self.gateways[report.gateway_id]
        shares: dict[str, int] = {}
        parts: dict[str, dict[str, float]] = {}
        tiers: dict[str, dict[Tier, float]] = {}
        may_exceed: list[str] = []
        for deployment_id, demand in report.deployments.items():
            own_slots = slots.get(deployment_id, {})
            due = self._divide(deployment_id, own_slots, now)
            for replica_id in own_slots.keys() & demand.held.keys():
                told = due.get(replica_id, {}).get(report.gateway_id, 0)
                held = demand.held[replica_id]
                if told > held.share:
                    free = 0 if now < self._grace_until else own_slots[replica_id]
                    free -= self.granted(replica_id) - gateway.may_run[replica_id]
                    told = max(held.share, min(told, free))
                gateway.may_run[replica_id] = max(held.share, held.running, told)
                shares[replica_id] = told
                if self._may_exceed(gateway, deployment_id, replica_id, now):
                    if replica_id not in gateway.may_exceed:
                        gateway.may_exceed.add(replica_id)
                        gateway.turn_at[replica_id] = now
                    may_exceed.append(replica_id)
            division = self._divisions[deployment_id]
            found = organization_parts(self._demands(deployment_id), report.gateway_id)
            if (part := division.never_paid.get(report.gateway_id, 1.0)) < 1.0:
                found[NEVER_PAID] = part
            if found:
                parts[deployment_id] = found
            by_tier = division.by_tier
            if kept := tier_parts(by_tier, report.gateway_id, demand):
                tiers[deployment_id] = kept
        return SlotSharesReply(
            *(self.epoch, shares, parts, len(self.gateways)),
            tiers=tiers,
            guarantees=dict(self._guarantees),
            may_exceed=tuple(may_exceed),
        )

    def _may_exceed(
        self, gateway: GatewayDemand, deployment_id: str, replica_id: str, now: float
    ) -> bool:
        """Tell whether a gateway may take more of a replica than its share: where no other may. It
        keeps that until another wants it; those that want it take turns."""
        others = [other for other in self.gateways.values() if other is not gateway]
        if now < self._grace_until or any(replica_id in other.may_exceed for other in others):
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
        """Return who is due what, divided anew if anything changed since a while."""
        demands = self._demands(deployment_id)
        last = self._divisions.setdefault(deployment_id, SlotDivision())
        is_same = last.among == demands.keys() and last.slots == slots
        if is_same and now - last.at < REDIVIDE_SECONDS:
            return last.shares
        turn, total = int(now / TURN_SECONDS), sum(slots.values())
        policy = TierPolicy(self._guarantees, self._reserved_share(deployment_id))
        quota = quotas(total, demands, last.quota, turn=turn, policy=policy)
        shares = assign(quota, slots, last.shares)
        by_tier = due_by_tier(total, demands, policy)
        self.epoch += shares != last.shares
        self._divisions[deployment_id] = SlotDivision(
            *(now, frozenset(demands), dict(slots), quota, shares, by_tier),
            never_paid_parts(total, demands, policy),
        )
        return shares

    def _demands(self, deployment_id: str) -> dict[str, DeploymentDemand]:
        return {
            gateway_id: gateway.deployments[deployment_id]
            for gateway_id, gateway in self.gateways.items()
            if deployment_id in gateway.deployments
        }


def _life_before(known: GatewayDemand | None, life: str) -> str:
    """Return which life of a gateway ended when this one began, of those heard of lately."""
    if known is None:
        return ""
    return known.life_before if known.life == life else known.life
