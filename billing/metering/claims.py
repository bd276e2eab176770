"""Which budgets an event charges and which leases it settles, and what about them is odd."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from django.db import connection

from billing.credit.selectors import BudgetKey, LeaseTerms, budget_rows, key_at, lease_terms
from billing.credit.services.budgets import open_budgets
from billing.credit.services.leases import lease_row
from billing.metering.judging import Fact, UsageAlarm
from serving.contract.budget import (
    balance_budget_id,
    is_fine,
    limit_budget_id,
    limited_id,
)
from serving.contract.usage import LeaseCharge, UsageEvent

KNOWN_MAX = 300_000

Month = tuple[int, int, int]
"""A caller in a month: its number, the year and the month."""
Chain = dict[str, int]
"""The rows of the budgets that a caller's requests of a month are charged to, by budget id."""
Name = TypeVar("Name")
Row = TypeVar("Row")


class UnknownBudgetError(LookupError):
    """A request would be charged to a budget that is not there."""


class Claims(msgspec.Struct, frozen=True, gc=False):
    """What an event charges, what it settles of its own leases, and the alarms it raises."""

    chain: Chain
    settled_nanos: dict[int, int]
    alarms: list[UsageAlarm]


class Claimants:
    """The budgets and leases that the facts of one batch name, looked up once.

    Neither a chain nor whose a lease is ever changes, so both are remembered once committed.
    """

    def __init__(self, facts: Iterable[Fact], lineage: str) -> None:
        named = {charge.lease_id for fact in facts for charge in fact.event.charges}
        self._leases = _leases(named, lineage)
        self._chains = _chains(facts)
        self._fine = _fine_rows(facts)

    def claims(self, fact: Fact) -> Claims:
        """Check what an event says of its leases. It is booked whatever comes out: usage is a fact.

        Billing's own charge is settled, once per budget; the gateway's figures only tell how it is
        split where one budget's money came from several leases. Raises UnknownBudgetError.
        """
        event, nanos = fact.event, fact.charged_nanos
        chain = self._chains.get(month_of(fact), {})
        if nanos and not chain:
            raise UnknownBudgetError(f"{event.organization_id} has no budgets")
        settled: dict[int, int] = {}
        stated = _stated(event.charges)
        alarms = _doubts(fact, stated)
        is_split = len(stated) < len(event.charges)
        parts = split(nanos, event.charges) if is_split else [nanos] * len(stated)
        for charge, part in zip(event.charges, parts, strict=True):
            lease = self._leases.get(charge.lease_id)
            if lease is None:
                alarms.append("unknown_lease")
            elif not is_own(lease, event, chain.get(charge.budget_id) or self._row(fact, charge)):
                alarms.append("foreign_lease")
            else:
                settled[lease.row] = settled.get(lease.row, 0) + part
        return Claims(chain, settled, alarms)

    def owners(self, leases: Collection[int]) -> list[str]:
        """Return whose leases these rows are."""
        owners = {one.row: one.organization_id for one in self._leases.values()}
        return [owners[row] for row in leases]

    def fine_leases(self) -> list[int]:
        """Return those of the leases that are of budgets by the week and the day."""
        fine = set(self._fine.values())
        if not fine:
            return []
        return [lease.row for lease in self._leases.values() if lease.budget_row in fine]

    def _row(self, fact: Fact, charge: LeaseCharge) -> int | None:
        """Return the row of a budget by the week or the day of who asked, if it is one; whoever
        control does not know has none."""
        event = fact.event
        if month_of(fact) not in self._chains:
            return None
        if limited_id(charge.budget_id) not in (
            event.organization_id, event.project_id, event.key_id
        ):  # fmt: skip
            return None
        return self._fine.get(key_at(charge.budget_id, fact.received.received_at))


def is_own(lease: LeaseTerms, event: UsageEvent, budget_row: int | None) -> bool:
    """Tell whether a lease is one that the event's gateway held for this budget and month."""
    return (
        lease.budget_row == budget_row
        and lease.gateway_id == event.gateway_id
        and lease.organization_id == event.organization_id
    )


def month_of(fact: Fact) -> Month:
    """Return who asked, and in which month."""
    at = fact.received.received_at
    return fact.caller_id, at.year, at.month


def split(nanos: int, charges: Sequence[LeaseCharge]) -> list[int]:
    """Return each lease's part of a charge: what the gateway said, the rest on a budget's last.

    Worked example: 70 from two leases of one budget that the gateway charged 50 and 20 are 50 and
    20; had it said 50 and 10, they were 50 and 20 all the same.
    """
    last = {charge.budget_id: place for place, charge in enumerate(charges)}
    left, parts = dict.fromkeys(last, nanos), []
    for place, charge in enumerate(charges):
        rest = left[charge.budget_id]
        parts.append(rest if last[charge.budget_id] == place else min(charge.charged_nanos, rest))
        left[charge.budget_id] -= parts[-1]
    return parts


def forget_claims() -> None:
    """Forget all chains and leases: the database is another one."""
    _known_chains.clear()
    _known_leases.clear()


_known_chains: dict[Month, Chain] = {}
_known_leases: dict[str, LeaseTerms] = {}


def _stated(charges: Iterable[LeaseCharge]) -> dict[str, int]:
    """Return what a gateway says it charged each budget."""
    stated: dict[str, int] = {}
    for charge in charges:
        stated[charge.budget_id] = stated.get(charge.budget_id, 0) + charge.charged_nanos
    return stated


def _doubts(fact: Fact, stated: Mapping[str, int]) -> list[UsageAlarm]:
    """Return what a gateway's figures leave to explain."""
    nanos, alarms = fact.charged_nanos, list[UsageAlarm]()
    if fact.fault is None and stated and set(stated.values()) != {nanos}:
        alarms.append("charge_difference")
    if nanos and balance_budget_id(fact.event.organization_id) not in stated:
        alarms.append("missing_lease")
    return alarms


def _leases(named: set[str], lineage: str) -> dict[str, LeaseTerms]:
    """Return the leases of those names, for those that exist."""
    found = {name: lease for name in named if (lease := _known_leases.get(name)) is not None}
    if missing := named - found.keys():
        rows = {name: row for name in missing if (row := lease_row(name, lineage)) is not None}
        terms = lease_terms(rows.values())
        there = {name: terms[row] for name, row in rows.items() if row in terms}
        found |= _remember(_known_leases, there)
    return found


def _chains(facts: Iterable[Fact]) -> dict[Month, Chain]:
    wanted = {month_of(fact): fact for fact in facts}
    found = {month: _known_chains[month] for month in wanted if month in _known_chains}
    keys = {month: _keys(fact) for month, fact in wanted.items() if month not in found}
    if keys:
        rows = open_budgets(key for listed in keys.values() for key in listed)
        opened = {
            month: {key.budget_id: rows[key] for key in listed}
            for month, listed in keys.items()
            if all(key in rows for key in listed)
        }
        found |= _remember(_known_chains, opened)
    return found


def _keys(fact: Fact) -> tuple[BudgetKey, ...]:
    event, at = fact.event, fact.received.received_at
    ids = (
        balance_budget_id(event.organization_id),
        limit_budget_id(event.organization_id),
        limit_budget_id(event.project_id),
        limit_budget_id(event.key_id),
    )
    return tuple(key_at(budget_id, at) for budget_id in ids)


def _fine_rows(facts: Iterable[Fact]) -> Mapping[BudgetKey, int]:
    """Return the rows of the budgets by the week and the day that events name leases of."""
    named = {
        key_at(charge.budget_id, fact.received.received_at)
        for fact in facts
        for charge in fact.event.charges
        if is_fine(charge.budget_id)
    }
    return budget_rows(named) if named else {}


def _remember(known: dict[Name, Row], rows: dict[Name, Row]) -> dict[Name, Row]:
    """Keep what was read where it is committed for certain; return it."""
    if not connection.in_atomic_block:
        if len(known) > KNOWN_MAX:
            known.clear()
        known.update(rows)
    return rows
