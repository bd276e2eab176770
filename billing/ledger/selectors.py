"""Questions to the books."""

from collections.abc import Sequence
from typing import NamedTuple

from billing.ledger.models import Account


class AccountKey(NamedTuple):
    """What names an account: its organization, its kind, and its grant where it has one."""

    organization_id: str
    kind: str
    owner_id: str = ""


def account_ids(keys: Sequence[AccountKey]) -> dict[AccountKey, int]:
    """Return the ids of those accounts that exist."""
    wanted = set(keys)
    rows = Account.objects.filter(
        organization_id__in={key.organization_id for key in wanted},
        kind__in={key.kind for key in wanted},
        owner_id__in={key.owner_id for key in wanted},
    ).values_list("organization_id", "kind", "owner_id", "id")
    found = {AccountKey(*names): account_id for *names, account_id in rows}
    return {key: account_id for key, account_id in found.items() if key in wanted}


def balance_nanos(organization_id: str, kind: str) -> int:
    """Return the cached balance of an organization's accounts of one kind, debits positive."""
    rows = Account.objects.filter(organization_id=organization_id, kind=kind)
    return sum(rows.values_list("balance_nanos", flat=True))
