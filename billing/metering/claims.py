"""Which budgets an event charges and which leases it settles, and what about them is odd."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from django.db import connection

from billing.credit.selectors import BudgetKey, LeaseTerms, key_at, lease_terms
from billing.credit.services.budgets import open_budgets
from billing.credit.services.leases import lease_row
from billing.metering.alarms import Alarm
from billing.metering.judging import Fact
from serving.contract.budget import balance_budget_id, limit_budget_id
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
    alarms: list[Alarm]


@dataclass(slots=True)
class Effects:
    """What new facts add to budgets and leases, by their rows, and the alarms to raise."""

    charged: Counter[int] = field(default_factory=Counter)
    settled: Counter[int] = field(default_factory=Counter)
    alarms: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, fact: Fact, claimed: Claims) -> None:
        """Count one fact in."""
        for alarm in (*fact.alarms, *claimed.alarms):
            self.alarms[fact.event.organization_id, alarm] += 1
        if nanos := fact.charged_nanos:
            for budget in claimed.chain.values():
                self.charged[budget] += nanos
            for lease, part in claimed.settled_nanos.items():
                self.settled[lease] += part


class Claimants:
    """The budgets and leases that the facts of one batch name, looked up once.

    Neither a chain nor whose a lease is ever changes, so both are remembered once committed.
    """

    def __init__(self, facts: Iterable[Fact], lineage: str) -> None:
        named = {charge.lease_id for fact in facts for charge in fact.event.charges}
        self._rows = {lease_id: lease_row(lease_id, lineage) for lease_id in named}
        self.terms = _terms({row for row in self._rows.values() if row is not None})
        self._chains = _chains(facts)

    def claims(self, fact: Fact) -> Claims:
        """Check what an event says of its leases. It is booked whatever comes out: usage is a fact.

        Billing's own charge is settled, once per budget; the gateway's figures only tell how it is
        split where one budget's money came from several leases. Raises UnknownBudgetError.
        """
        event, nanos = fact.event, fact.charged_nanos
        chain = self._chains.get(month_of(fact), {})
        if nanos and not chain:
            raise UnknownBudgetError(f"{event.organization_id} has no budgets")
        found = Claims(chain, {}, [])
        stated = _stated(event.charges)
        if fact.fault is None and any(total != nanos for total in stated.values()):
            found.alarms.append("charge_difference")
        if nanos and balance_budget_id(event.organization_id) not in stated:
            found.alarms.append("missing_lease")
        for charge, part in zip(event.charges, split(nanos, event.charges), strict=True):
            row = self._rows[charge.lease_id]
            terms = None if row is None else self.terms.get(row)
            if row is None or terms is None:
                found.alarms.append("unknown_lease")
            elif not is_own(terms, event, chain.get(charge.budget_id)):
                found.alarms.append("foreign_lease")
            else:
                found.settled_nanos[row] = found.settled_nanos.get(row, 0) + part
        return found


def is_own(terms: LeaseTerms, event: UsageEvent, budget_row: int | None) -> bool:
    """Tell whether a lease is one that the event's gateway held for this budget and month."""
    return (
        terms.budget_row == budget_row
        and terms.gateway_id == event.gateway_id
        and terms.organization_id == event.organization_id
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
    if len(last) == len(charges):
        return [nanos] * len(charges)
    left, parts = dict.fromkeys(last, nanos), []
    for place, charge in enumerate(charges):
        rest = left[charge.budget_id]
        parts.append(rest if last[charge.budget_id] == place else min(charge.charged_nanos, rest))
        left[charge.budget_id] -= parts[-1]
    return parts


def forget_claims() -> None:
    """Forget all chains and leases: the database is another one."""
    _known_chains.clear()
    _known_terms.clear()


_known_chains: dict[Month, Chain] = {}
_known_terms: dict[int, LeaseTerms] = {}


def _stated(charges: Iterable[LeaseCharge]) -> dict[str, int]:
    """Return what a gateway says it charged each budget."""
    stated: dict[str, int] = {}
    for charge in charges:
        stated[charge.budget_id] = stated.get(charge.budget_id, 0) + charge.charged_nanos
    return stated


def _terms(rows: set[int]) -> dict[int, LeaseTerms]:
    found = {row: _known_terms[row] for row in rows if row in _known_terms}
    if missing := rows - found.keys():
        found |= _remember(_known_terms, lease_terms(missing))
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


def _remember(known: dict[Name, Row], rows: dict[Name, Row]) -> dict[Name, Row]:
    """Keep what was read where it is committed for certain; return it."""
    if not connection.in_atomic_block:
        if len(known) > KNOWN_MAX:
            known.clear()
        known.update(rows)
    return rows
