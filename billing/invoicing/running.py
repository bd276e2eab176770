"""The month that is running: what it came to so far, and what it comes to at this pace."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from billing.credit.selectors import balance_nanos
from billing.invoicing import usage
from billing.invoicing.closes import uninvoiced
from billing.invoicing.drafts import Draft, lines_of
from billing.invoicing.models import BillingProfile, InvoiceLine, LegalEntity
from billing.invoicing.parties import buyer_printed, seller_printed
from billing.invoicing.periods import Period, period_of
from billing.invoicing.printed import clean, day, dollars, line_groups
from billing.invoicing.selectors import (
    Standing,
    billing_profile,
    invoices,
    legal_entity_of,
    standings,
)
from control.organizations.models import Organization
from serving.contract.money import cents

PACE_AFTER_SECONDS = 3600
"""Earlier in a month nobody can tell how it will go."""


@dataclass(frozen=True, slots=True)
class RunningMonth:
    """A month so far, before tax: nothing of it is final. `days` are nanos by meter."""

    period: Period
    as_of: datetime
    lines: list[InvoiceLine]
    days: list[list[int]]
    subtotal_cents: int
    credit_cents: int
    pace_cents: int | None
    """What it comes to at this pace; None in its first hour."""

    @property
    def net_cents(self) -> int:
        """What is left to pay of it so far, before tax."""
        return self.subtotal_cents - self.credit_cents


def running_month(
    organization: Organization, *, now: datetime, invoiced: Sequence[Standing] | None = None
) -> RunningMonth:
    """Return an organization's running month, as of a few seconds ago.

    `invoiced` are all its invoices, for who has them already.
    """
    period = period_of(now.astimezone(UTC).date())
    found = usage.used(organization.pk, period)
    lines = lines_of(found.sold)
    if invoiced is None:
        invoiced = standings(invoices(organization))
    owed = _owed(organization, found.nanos, invoiced)
    sums = Draft(organization.pk, period, lines, owed, found.days).totals(0)
    elapsed = int((now - period.starts_at).total_seconds())
    whole = int((period.ends_at - period.starts_at).total_seconds())
    pace = cents(found.nanos * whole // elapsed) if elapsed >= PACE_AFTER_SECONDS else None
    return RunningMonth(
        period=period, as_of=now, lines=lines, days=found.days,
        subtotal_cents=sums.subtotal_cents, credit_cents=sums.credit_applied_cents,
        pace_cents=pace,
    )  # fmt: skip


def waits_for_close(organization: Organization, *, now: datetime) -> Period | None:
    """Return the month before where it was used and is not invoiced yet."""
    last = period_of(now.astimezone(UTC).date()).before
    return last if uninvoiced(last, organization.pk) else None


def draft_printed(organization: Organization, month: RunningMonth) -> dict[str, Any]:
    """Return the running month as it is printed: a draft, with no number and nothing due."""
    profile: BillingProfile = billing_profile(organization)
    entity: LegalEntity = legal_entity_of(profile)
    pace = []
    if month.pace_cents is not None:
        words = f"{dollars(month.pace_cents)} by {day(month.period.last_day)}"
        pace.append(["At this pace", words, ""])
    return clean(
        {
            "kind": "Invoice",
            "label": "DRAFT",
            "number": "not final",
            "paper": profile.paper,
            "seller": seller_printed(entity),
            "buyer": buyer_printed(profile),
            "facts": [["As of", f"{day(month.as_of.date())}, {month.as_of:%H:%M} UTC"]],
            "headline": f"{dollars(month.subtotal_cents)} so far",
            "subline": month.period.words,
            "days": month.days,
            "groups": line_groups(month.lines, month.period),
            "totals": [
                ["Subtotal", dollars(month.subtotal_cents), ""],
                ["Credit applied", dollars(-month.credit_cents), ""],
                *pace,
                ["So far, before tax", dollars(month.net_cents), "due"],
            ],
            "notes": ["This is a draft: the month is not over, and nothing here is final."],
            "bank_details": [],
            "reference": "",
            "issued_on": month.as_of.date().isoformat(),
        }
    )


def _owed(organization: Organization, used_nanos: int, invoiced: Sequence[Standing]) -> int:
    """Return what no credit covers of the month: the debt, less what is on invoices already."""
    debt = max(-balance_nanos(organization.pk), 0)
    return min(max(debt - sum(one.open_nanos for one in invoiced), 0), used_nanos)
