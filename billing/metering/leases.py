"""Which leases an event settles, and what about them deserves an alarm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from billing.credit.selectors import LeaseTerms
from billing.metering.reading import Rated
from serving.contract.usage import LeaseCharge, UsageEvent

Alarm = Literal[
    "unknown_lease",
    "closed_lease",
    "foreign_lease",
    "missing_lease",
    "charge_difference",
    "lease_overrun",
    "duplicate_event",
    "dead_letter",
]


@dataclass(frozen=True, slots=True)
class Claims:
    """What an event settles of its own leases, and the alarms that its claims raise."""

    settled_nanos: dict[str, int]
    alarms: list[Alarm]


def claims(rated: Rated, terms: Mapping[str, LeaseTerms]) -> Claims:
    """Check what an event says of its leases. It is booked whatever comes out: usage is a fact.

    Billing's own charge is settled, once per budget; the gateway's figures only tell how it is
    split where one budget's money came from several leases.
    """
    event = rated.event
    found = Claims({}, [])
    by_budget: dict[str, list[LeaseCharge]] = {}
    for charge in event.charges:
        by_budget.setdefault(charge.budget_id, []).append(charge)
    for charges in by_budget.values():
        if sum(charge.charged_nanos for charge in charges) != rated.charge.charged_nanos:
            found.alarms.append("charge_difference")
        for charge, nanos in zip(charges, split(rated.charge.charged_nanos, charges), strict=True):
            _claim(found, event, charge, nanos, terms.get(charge.lease_id))
    if rated.charge.charged_nanos and event.organization_id not in by_budget:
        found.alarms.append("missing_lease")
    return found


def split(nanos: int, charges: Sequence[LeaseCharge]) -> list[int]:
    """Return each lease's part of a charge: what the gateway said, the rest on the last."""
    parts = []
    for charge in charges[:-1]:
        parts.append(min(charge.charged_nanos, nanos))
        nanos -= parts[-1]
    return [*parts, nanos]


def _claim(
    found: Claims, event: UsageEvent, charge: LeaseCharge, nanos: int, terms: LeaseTerms | None
) -> None:
    alarm = _alarm(event, charge, terms)
    if alarm is not None:
        found.alarms.append(alarm)
    if alarm in (None, "closed_lease"):
        found.settled_nanos[charge.lease_id] = found.settled_nanos.get(charge.lease_id, 0) + nanos


def _alarm(event: UsageEvent, charge: LeaseCharge, terms: LeaseTerms | None) -> Alarm | None:
    if terms is None:
        return "unknown_lease"
    is_own = (
        terms.organization_id == event.organization_id
        and terms.gateway_id == event.gateway_id
        and terms.budget_id == charge.budget_id
        and charge.budget_id in (event.organization_id, event.project_id, event.key_id)
    )
    if not is_own:
        return "foreign_lease"
    return None if terms.is_open else "closed_lease"
