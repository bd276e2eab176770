"""Posting to the books. Callers hold the row lock of the organization's budget."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction

from billing.ledger.models import Account, AccountKind, Entry, Transaction, TransactionKind
from billing.ledger.selectors import AccountKey, account_ids

ADD_TO_BALANCES = """
UPDATE ledger_account AS account SET balance_nanos = account.balance_nanos + moved.nanos
FROM unnest(%s::bigint[], %s::bigint[]) AS moved (account_id, nanos)
WHERE account.id = moved.account_id
"""


class UnbalancedError(ValueError):
    """The entries of a posting do not sum to zero."""


@dataclass(frozen=True, slots=True)
class Side:
    """One entry to write: nanos debited to (positive) or credited to (negative) an account."""

    account_id: int
    nanos: int


@dataclass(frozen=True, slots=True)
class Posting:
    """One balanced movement to write; `source` is its idempotency key."""

    transaction_id: str
    source: str
    kind: TransactionKind
    organization_id: str
    sides: tuple[Side, ...]

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
    """Write the movements and add them to the cached balances.

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
        )
        for posting in postings
    )
    Entry.objects.bulk_create(
        Entry(transaction_id=posting.transaction_id, account_id=side.account_id, nanos=side.nanos)
        for posting in postings
        for side in posting.sides
    )
    _add_to_balances(postings)


def _add_to_balances(postings: Sequence[Posting]) -> None:
    moved: Counter[int] = Counter()
    for posting in postings:
        for side in posting.sides:
            moved[side.account_id] += side.nanos
    with connection.cursor() as cursor:
        cursor.execute(ADD_TO_BALANCES, [list(moved.keys()), list(moved.values())])
