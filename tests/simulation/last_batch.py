"""The last batches of a seed, shipped with nobody beside them: all that may be odd about an event,
at the very edges of what is believed, with the receipt and the alarms that they must have."""

import random
from collections import Counter
from datetime import datetime, timedelta

import msgspec
import psycopg

from billing.metering.ingest import ingest
from billing.metering.judging import CHARGE_MAX_NANOS
from serving.contract.usage import UsageBatch, UsageEvent
from tests.simulation.audit import LIFETIME, number_of
from tests.simulation.cast import Cast
from tests.simulation.deeds.gateways import hear_receipt
from tests.simulation.gateway import Gateway
from tests.simulation.odd import TOO_DEAR, at_moment, misfits, poisons, write_misfit
from tests.simulation.oracle import (
    CLOCKS_APART,
    due,
    fault_of,
    fine_periods,
    is_fine,
    month_of,
    price_alarms,
    received_at,
    require,
)
from tests.simulation.watch import BUDGETS, LEASES, BudgetRow, LeaseRow

TALLIES = "SELECT organization_id, kind, sum(count)::bigint FROM metering_tally GROUP BY 1, 2"
MILLISECOND = timedelta(milliseconds=1)
ODD_SHARE = 0.5
"""How much of all that may be odd a seed ships."""

Alarms = Counter[tuple[str, str]]


def ship_last(cast: Cast, monitor: psycopg.Connection, rng: random.Random) -> None:
    """Ship what is odd, then the same once more with what contradicts it. Raises BrokenError."""
    gateway = cast.gateways[0]
    written = (one[-1] for one in gateway.journal.written.values())
    told = [one for one in written if one.charges and _is_modest(one, cast)]
    if not told:
        return
    event = msgspec.structs.replace(rng.choice(told), outcome="completed")
    fresh = [_renewed(gateway, one) for one in _odd(event, cast, rng)]
    lost = [_renewed(gateway, event, outcome="gateway_lost") for _ in range(2)]
    bodies = [write_misfit(gateway.journal, one, cast.world) for one in fresh + lost]
    count = len(poisons(event, cast.now))
    spoilt = [poisons(_renewed(gateway, event), cast.now)[n] for n in range(count) if _falls(rng)]
    for body, name in spoilt:
        gateway.journal.write_poison(body, name)
        bodies.append(body)
    _ship(cast, monitor, _mixed(bodies, rng), booked=fresh + lost, alarms=Counter())
    real = msgspec.structs.replace(lost[0], outcome="completed")
    other = msgspec.structs.replace(fresh[0], queue_seconds=7.0)
    twice = _renewed(gateway, event)
    once_lost = msgspec.structs.replace(twice, outcome="gateway_lost")
    extra = [write_misfit(gateway.journal, one, cast.world)
             for one in (real, other, twice, once_lost)]  # fmt: skip
    again = [*extra, extra[2], bodies[1], bodies[len(fresh) + 1]]
    alarms: Alarms = Counter({(other.organization_id, "other_content"): 1})
    _ship(cast, monitor, _mixed(again, rng), booked=[real, twice], alarms=alarms)
    _ship_apart(cast, monitor, event, rng)
    _ship_refused_first(cast, monitor, event)
    _ship_first_moment(cast, monitor, event)


def _ship_apart(
    cast: Cast, monitor: psycopg.Connection, event: UsageEvent, rng: random.Random
) -> None:
    """Ship one event told twice within a batch, and one that the future holds."""
    gateway = cast.gateways[0]
    once = _renewed(gateway, event)
    bodies = [write_misfit(gateway.journal, msgspec.structs.replace(once, queue_seconds=seconds),
                           cast.world) for seconds in (1.0, 2.0)]  # fmt: skip
    ahead = at_moment(_renewed(gateway, event), cast.now + CLOCKS_APART + MILLISECOND)
    bodies.append(gateway.journal.write(ahead))
    alarms: Alarms = Counter({(once.organization_id, "other_content"): 1})
    _ship(cast, monitor, _mixed(bodies, rng), booked=[once], alarms=alarms, letters=1)


def _ship_refused_first(cast: Cast, monitor: psycopg.Connection, event: UsageEvent) -> None:
    """Ship one event told twice, of which what is told first can never be booked."""
    gateway = cast.gateways[0]
    fine = _renewed(gateway, event)
    dear = msgspec.json.encode(msgspec.structs.replace(fine, **TOO_DEAR))
    gateway.journal.write_poison(dear, fine.event_id)
    bodies = [dear, write_misfit(gateway.journal, fine, cast.world)]
    _ship(cast, monitor, bodies, booked=[fine], alarms=Counter())


def _ship_first_moment(cast: Cast, monitor: psycopg.Connection, event: UsageEvent) -> None:
    """Ship what came in at the very beginning of a budget's week or day, with nothing beside it."""
    owners = (event.organization_id, event.project_id, event.key_id)
    for row in (BudgetRow(*row) for row in monitor.execute(BUDGETS).fetchall()):
        is_its = is_fine(row.budget_id) and row.budget_id.split(":")[1] in owners
        if is_its and row.starts_at <= cast.now:
            first = at_moment(_renewed(cast.gateways[0], event), row.starts_at)
            body = write_misfit(cast.gateways[0].journal, first, cast.world)
            _ship(cast, monitor, [body], booked=[first], alarms=Counter())
            return


def _mixed(bodies: list[bytes], rng: random.Random) -> list[bytes]:
    return rng.sample(bodies, len(bodies))


def _odd(event: UsageEvent, cast: Cast, rng: random.Random) -> list[UsageEvent]:
    """Return ordinary events at the edges of time, and some in which one thing is odd."""
    lists = sorted(one.effective_at for one in cast.world.tariffs if one.price_id == "price_10")
    edges: list[tuple[str, datetime]] = [
        ("price_10", cast.now + CLOCKS_APART),
        ("price_00", cast.now - timedelta(days=90)),
    ]
    for at in lists:
        edges += [
            ("price_10", at - CLOCKS_APART), ("price_10", at - CLOCKS_APART - MILLISECOND),
            ("price_00", at + CLOCKS_APART), ("price_00", at + CLOCKS_APART - MILLISECOND),
        ]  # fmt: skip
    made = [msgspec.structs.replace(event, price_id=name) for name, _ in edges]
    moved = [at_moment(one, at) for one, (_, at) in zip(made, edges, strict=True)]
    return moved + [one for one in misfits(event, cast.world) if _falls(rng)]


def _is_modest(event: UsageEvent, cast: Cast) -> bool:
    """Tell whether an event could be booked at the list's other prices too."""
    made = (msgspec.structs.replace(event, price_id=name) for name in ("price_00", "price_10"))
    costs = (due(one, cast.world.tariffs, cast.world.callers).rated_nanos for one in made)
    return all(cost <= CHARGE_MAX_NANOS for cost in costs)


def _falls(rng: random.Random) -> bool:
    return rng.random() < ODD_SHARE


def _renewed(gateway: Gateway, event: UsageEvent, **changes: object) -> UsageEvent:
    """Return an event under a new id of the same moment."""
    fresh = gateway.new_event_id(gateway.now)
    kept = event.event_id[:14]
    return msgspec.structs.replace(event, event_id=kept + fresh[14:], **changes)


def _ship(
    cast: Cast, monitor: psycopg.Connection, bodies: list[bytes], *,
    booked: list[UsageEvent], alarms: Alarms, letters: int = 0,
) -> None:  # fmt: skip
    """Ship bodies; what is booked of them is told, and the alarms besides its own."""
    gateway = cast.gateways[0]
    refused = letters + sum(body in gateway.journal.poison for body in bodies)
    before = _tallies(monitor)
    leases = {row[0]: LeaseRow(*row) for row in monitor.execute(LEASES)}
    budgets = {row[0]: BudgetRow(*row) for row in monitor.execute(BUDGETS)}
    batch = UsageBatch(gateway.gateway_id, tuple(map(msgspec.Raw, bodies)), sent_at=cast.now)
    receipt = ingest(batch, now=cast.now)
    hear_receipt(cast, gateway, batch, receipt)
    repeated = len(bodies) - len(booked) - refused
    counts = (receipt.accepted, receipt.duplicates, len(receipt.dead_lettered))
    wanted = (len(booked), repeated, refused)
    require(counts == wanted, "A receipt counts what became of a batch", counts, wanted)
    alarms = alarms + Counter({("", "duplicate_event"): repeated, ("", "dead_letter"): refused})
    for event in booked:
        alarms += _alarms(event, cast, leases, budgets)
    raised = _tallies(monitor)
    raised.subtract(before)
    per_lease = ("closed_lease", "lease_overrun")
    found = Counter({key: n for key, n in raised.items() if n and key[1] not in per_lease})
    require(found == alarms, "What is odd is told, as often as it is", found - alarms,
            alarms - found)  # fmt: skip


def _tallies(monitor: psycopg.Connection) -> Alarms:
    return Counter({(row[0], row[1]): row[2] for row in monitor.execute(TALLIES)})


def _alarms(
    event: UsageEvent, cast: Cast, leases: dict[int, LeaseRow], budgets: dict[int, BudgetRow]
) -> Alarms:
    """Return what somebody must be told of one event."""
    world = cast.world
    kinds = list(price_alarms(event, world.tariffs, world.callers))
    nanos = due(event, world.tariffs, world.callers).charged_nanos
    stated: Counter[str] = Counter()
    for one in event.charges:
        stated[one.budget_id] += one.charged_nanos
        number = number_of(one.lease_id, leases)
        lease = None if number is None else leases[number]
        if lease is None:
            kinds.append("unknown_lease")
        elif not _is_own(event, one.budget_id, lease, budgets[lease.budget]):
            kinds.append("foreign_lease")
    is_right = all(stated[one.budget_id] == nanos for one in event.charges)
    if not is_right and fault_of(event, world.tariffs, world.callers) is None:
        kinds.append("charge_difference")
    if nanos and f"balance:{event.organization_id}" not in stated:
        kinds.append("missing_lease")
    return Counter((event.organization_id, kind) for kind in kinds)


def _is_own(event: UsageEvent, budget_id: str, lease: LeaseRow, budget: BudgetRow) -> bool:
    """Whoever control does not know has no budget at all."""
    month = month_of(received_at(event.event_id))
    chain = {f"balance:{event.organization_id}": LIFETIME} | {
        f"limit:{one}": month
        for one in (event.organization_id, event.project_id, event.key_id)
    }  # fmt: skip
    for one in (event.organization_id, event.project_id, event.key_id):
        chain |= fine_periods(one, received_at(event.event_id))
    is_known = not any("_none" in name for name in chain)
    is_its_budget = budget_id == budget.budget_id and chain.get(budget_id) == budget.starts_at
    return is_known and is_its_budget and lease.gateway_id == event.gateway_id
