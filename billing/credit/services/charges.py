"""Booking usage: credit that expires soonest is spent first, the rest is owed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from billing.credit.selectors import CreditSource, credit_sources
from billing.ledger.models import AccountKind, TransactionKind
from billing.ledger.selectors import AccountKey
from billing.ledger.services import Posting, Side, open_accounts, post


@dataclass(frozen=True, slots=True)
class UsageCharge:
    """What one organization is charged for a batch of events; `source` names the batch."""

    organization_id: str
    transaction_id: str
    source: str
    nanos: int


def draw(nanos: int, sources: Sequence[CreditSource]) -> tuple[list[Side], int]:
    """Return the debits that take `nanos` from `sources` in order, and what they do not cover.

    Worked example: 70 from sources holding 50 and 100 are debits of 50 and 20, 0 uncovered.
    """
    sides = []
    for source in sources:
        taken = min(nanos, source.remaining_nanos)
        if taken > 0:
            sides.append(Side(source.account_id, taken))
            nanos -= taken
    return sides, nanos


def post_charges(charges: Sequence[UsageCharge], *, now: datetime) -> None:
    """Post one balanced transaction per organization; the organizations' locks are held."""
    organization_ids = [charge.organization_id for charge in charges]
    sources = credit_sources(organization_ids)
    accounts = open_accounts(
        AccountKey(organization_id, kind)
        for organization_id in organization_ids
        for kind in (AccountKind.REVENUE, AccountKind.ACCOUNTS_RECEIVABLE)
    )
    post(
        [_posting(charge, sources.get(charge.organization_id, []), accounts) for charge in charges],
        now=now,
    )


def _posting(
    charge: UsageCharge, sources: Sequence[CreditSource], accounts: Mapping[AccountKey, int]
) -> Posting:
    sides, owed = draw(charge.nanos, sources)
    if owed:
        receivable = AccountKey(charge.organization_id, AccountKind.ACCOUNTS_RECEIVABLE)
        sides.append(Side(accounts[receivable], owed))
    revenue = accounts[AccountKey(charge.organization_id, AccountKind.REVENUE)]
    return Posting(
        transaction_id=charge.transaction_id,
        source=charge.source,
        kind=TransactionKind.USAGE,
        organization_id=charge.organization_id,
        sides=(*sides, Side(revenue, -charge.nanos)),
    )
