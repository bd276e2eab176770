"""Posting to the books. Callers hold the lock of the organization's balance."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from django.db import transaction

from billing.ledger.causes import AccountKind, Cause
from billing.ledger.models import Account, Entry, Transaction
from billing.ledger.selectors import AccountKey, account_ids


class UnbalancedError(ValueError):
    """The entries of a posting do not sum to zero."""


@dataclass(frozen=True, slots=True)
class Side:
    """One entry to write: nanos debited to (positive) or credited to (negative) an account."""

    account_id: int
    nanos: int


@dataclass(frozen=True, slots=True)
class Posting:
    """One balanced movement to write; `source` is its idempotency key.

    It is accounted on the day it is posted unless it says otherwise.
    """

    transaction_id: str
    source: str
    kind: Cause
    organization_id: str
    sides: tuple[Side, ...]
    accounted_on: date | None = None

    def __post_init__(self) -> None:
        total = sum(side.nanos for side in self.sides)
        if total != 0:
            raise UnbalancedError(f"{self.source} sums to {total} nanos; wanted 0")


def open_accounts(keys: Iterable[AccountKey]) -> dict[AccountKey, int]:
    """Return the ids of the accounts, making those that are missing."""
    wanted = sorted(set(keys))
    present = account_ids(wanted)
    missing = [key for key in wanted if key not in present]
    if not missing:
        return present
    Account.objects.bulk_create(
        [Account(organization_id=org, kind=kind, owner_id=owner) for org, kind, owner in missing],
        ignore_conflicts=True,
    )
    return account_ids(wanted)


def open_account(organization_id: str, kind: AccountKind, owner_id: str = "") -> int:
    """Return the id of one account, making it where it is missing."""
    key = AccountKey(organization_id, kind, owner_id)
    return open_accounts([key])[key]


@transaction.atomic
def post(postings: Sequence[Posting], *, now: datetime) -> None:
    """Write the movements; the database adds them to the balances.

    Raises django.db.IntegrityError when a source was posted before.
    """
    if not postings:
        return
    Transaction.objects.bulk_create(
        Transaction(
            id=posting.transaction_id,
            source=posting.source,
            kind=posting.kind,
            organization_id=posting.organization_id,
            posted_at=now,
            accounted_on=posting.accounted_on or now.astimezone(UTC).date(),
        )
        for posting in postings
    )
    Entry.objects.bulk_create(
        Entry(transaction_id=posting.transaction_id, account_id=side.account_id, nanos=side.nanos)
        for posting in postings
        for side in posting.sides
    )
