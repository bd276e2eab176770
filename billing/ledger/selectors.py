"""Questions to the books."""

from collections.abc import Collection
from typing import NamedTuple

from django.db import connection
from django.db.models import Sum

from billing.ledger.causes import AccountKind
from billing.ledger.models import Account, Entry

# A look-up for each: with an array for each column, the index would be asked for every combination.
ACCOUNT_IDS = """
SELECT organization_id, kind, owner_id, id FROM ledger_account
WHERE (organization_id, kind, owner_id)
    IN (SELECT * FROM unnest(%s::text[], %s::text[], %s::text[]))
"""


class AccountKey(NamedTuple):
    """What names an account: its organization, its kind, and its grant where it has one."""

    organization_id: str
    kind: str
    owner_id: str = ""


def account_ids(keys: Collection[AccountKey]) -> dict[AccountKey, int]:
    """Return the ids of those accounts that exist."""
    columns = [[str(key[place]) for key in keys] for place in range(3)]
    with connection.cursor() as cursor:
        cursor.execute(ACCOUNT_IDS, columns)
        return {AccountKey(*names): account_id for *names, account_id in cursor.fetchall()}


def balance_nanos(organization_id: str, *kinds: str) -> int:
    """Return the cached balance of an organization's accounts of these kinds, debits positive."""
    rows = Account.objects.filter(organization_id=organization_id, kind__in=kinds)
    return sum(rows.values_list("balance_nanos", flat=True))


def owed_by(organization_ids: Collection[str]) -> dict[str, int]:
    """Return what each of the organizations owes, in nanos, of those that owe something."""
    owing = Account.objects.filter(
        organization_id__in=organization_ids,
        kind=AccountKind.ACCOUNTS_RECEIVABLE,
        balance_nanos__gt=0,
    )
    return dict(owing.values_list("organization_id", "balance_nanos"))


def posted_nanos(source: str) -> int | None:
    """Return what the transaction of a source moved, None where there is none."""
    debits = Entry.objects.filter(transaction__source=source, nanos__gt=0)
    return debits.aggregate(nanos=Sum("nanos"))["nanos"]


def funding_account(source: str) -> AccountKind:
    """Return the one account that a transaction debited, by its source: where a grant came from."""
    (kind,) = Entry.objects.filter(transaction__source=source, nanos__gt=0).values_list(
        "account__kind", flat=True
    )
    return AccountKind(kind)
