"""The slots of a deployment, divided among gateways: by what organizations need, not by requests.

Slots go to tiers first (`serving.contract.tiers`). Within a tier they go to organizations: to
each what it needs, and where that is more than there is, by their weights (max-min). An
organization counts once however many gateways it comes through; there its slots follow its
requests. All organizations that never paid count as one, and divide what it is due. What nobody
needs, and what is kept free of `batch`, is divided evenly, so that whoever comes next finds a
slot.
"""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from math import ceil, floor
from typing import NamedTuple

from serving.contract.tiers import (
    DEFAULT_GUARANTEES,
    URGENT,
    Guarantees,
    divide,
    fill,
    reserved_slots,
)
from serving.contract.units import Tier
from serving.fleet.demand_totals import DemandTotals, GroupKey, TierTotals

Shares = dict[str, dict[str, int]]
"""By replica, each gateway's slots."""


TierDues = Mapping[Tier, Mapping[str, float]]
"""By tier, the slots that each gateway is due for it."""


ROUNDING = 1e-6


GOLDEN_RATIO = 0.6180339887498949
"""Its multiples fall evenly between whole numbers, however many of them there are."""


ALL_NEVER_PAID: GroupKey = (0, 0, False)
"""All organizations together that never paid: no group of its own has weight 0."""


class TierPolicy(NamedTuple):
    """What tiers are guaranteed, and how much of all slots is kept free of `batch` for each urgent
    one in use."""

    guarantees: Guarantees = DEFAULT_GUARANTEES
    reserved_share: float = 0.1


USUAL = TierPolicy()


def quotas(
    slots: int,
    demands: DemandTotals,
    before: Mapping[str, int],
    *,
    turn: int = 0,
    policy: TierPolicy = USUAL,
) -> dict[str, int]:
    """Return how many of so many slots each gateway gets: all of them together, and at least one
    each. Where there are fewer slots than gateways, they take turns, as `turn` grows.

    What is due is a fraction; a gateway keeps the whole number of `before` within one of it.
    """
    return whole_quotas(slots, due_by_tier(slots, demands, policy), demands, before, turn=turn)


def whole_quotas(
    slots: int, by_tier: TierDues, demands: DemandTotals, before: Mapping[str, int], *, turn: int
) -> dict[str, int]:
    """Return what `quotas` does, of what each gateway is due for each tier."""
    due = {
        gateway: sum(own[gateway] for own in by_tier.values())
        for gateway in sorted(demands.gateways)
    }
    each = max(0.0, slots - sum(due.values())) / len(due) if due else 0.0
    due = {gateway: own + each for gateway, own in due.items()}
    if slots < len(due):
        return _in_turns(due, turn)
    return _rounded(slots, _at_least_one(slots, due), before)


def due_by_tier(
    slots: int, demands: DemandTotals, policy: TierPolicy = USUAL, *, of_all: bool = True
) -> dict[Tier, dict[str, float]]:
    """Return what each gateway is due for each tier that anybody needs, or what of it is due for
    organizations that never paid."""
    in_use = sum(1 for tier in URGENT if demands.tiers[tier].gateways)
    due = divide(
        slots,
        {tier: totals.need for tier, totals in demands.tiers.items()},
        policy.guarantees,
        reserved_slots(in_use, policy.reserved_share, slots, slots),
    )
    return {
        tier: _by_group(given, demands.tiers[tier], demands.gateways, of_all=of_all)
        for tier, given in due.items()
    }


def tier_parts(by_tier: TierDues, gateway: str, demands: DemandTotals) -> dict[Tier, float]:
    """Return which part of a gateway's slots a tier keeps there that needs more than it is due.
    Another keeps what it is guaranteed, so that what comes of it now has its turn."""
    due = {tier: own[gateway] for tier, own in by_tier.items() if tier != "batch"}
    total = sum(due.values())
    return {
        tier: given / total
        for tier, given in due.items()
        if 0.0 < given < demands.tiers[tier].needs.get(gateway, 0) - ROUNDING
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
        if moves <= 0:
            continue
        held = _heap(-beyond(gateway, one) if shares[one][gateway] else None for one in order)
        for _ in range(moves):
            place = held[0][1]
            own = shares[order[place]]
            own[gateway] -= 1
            free[order[place]] += 1
            _again(held, -beyond(gateway, order[place]) if own[gateway] else None)
    for gateway, moves in surplus.items():
        if moves >= 0:
            continue
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


def kv_parts(tokens: int, slots: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    """Return each gateway's part of so many tokens of a KV cache, by its slots: of what those leave
    that hold more than their part. They begin nothing until they hold less."""
    beyond: dict[str, int] = {}
    while True:
        left = max(0, tokens - sum(held[one] for one in beyond))
        total = sum(slots[one] for one in held if one not in beyond) or 1
        parts = {one: left * slots[one] // total for one in held if one not in beyond}
        more = {one: part for one, part in parts.items() if held[one] > part}
        if not more:
            return beyond | parts
        beyond |= more


def _by_group(
    slots: float, totals: TierTotals, gateways: Iterable[str], *, of_all: bool
) -> dict[str, float]:
    """Return what each gateway is due for one tier."""
    tenants, never_paid = dict[GroupKey, tuple[int, int]](), dict[GroupKey, tuple[int, int]]()
    # Sorted, so that what follows from the same sums is the same to the last digit.
    for key in sorted(totals.groups):
        weight, need, is_paying = key
        count = totals.groups[key].count
        (tenants if is_paying else never_paid)[key] = count * weight, count * need
    tenants[ALL_NEVER_PAID] = 1, sum(need for _, need in never_paid.values())
    given = fill(slots, tenants)
    of_never_paid = fill(given.pop(ALL_NEVER_PAID), never_paid)
    due = dict.fromkeys(gateways, 0.0)
    for key, slots_given in [*(given.items() if of_all else ()), *of_never_paid.items()]:
        group = totals.groups[key]
        each = slots_given / (group.count * key[1])
        for gateway, need in group.needs.items():
            if need:
                due[gateway] += each * need
    return due


def never_paid_parts(
    slots: int, demands: DemandTotals, policy: TierPolicy = USUAL
) -> dict[str, float]:
    """Return which part of the slots of all organizations that never paid each gateway is due."""
    if not any(totals.has_never_paid for totals in demands.tiers.values()):
        return {}
    by_tier = due_by_tier(slots, demands, policy, of_all=False).values()
    due = {gateway: sum(own[gateway] for own in by_tier) for gateway in demands.gateways}
    total = sum(due.values())
    return {gateway: own / total for gateway, own in due.items() if own}


def _at_least_one(slots: int, due: Mapping[str, float]) -> dict[str, float]:
    """Return what gateways are due where each has one slot: others give for that in proportion."""
    few: set[str] = set()
    while True:
        left, total = slots - len(few), sum(due[one] for one in due if one not in few)
        scaled = {one: 1.0 if one in few else own * left / total for one, own in due.items()}
        fewer = {one for one, own in scaled.items() if own < 1.0 - ROUNDING}
        if not fewer:
            return scaled
        few |= fewer


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
