"""Deferred credit: what was paid or given ahead and is not used yet, by how long ago."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils.translation import gettext_noop

AGES = (30, 90, 180, 365)
"""Upper bounds of days since a grant, both kinds of credit; what is older comes last."""
WORDS = (
    gettext_noop("Up to 30 days"),
    gettext_noop("31\N{EN DASH}90 days"),
    gettext_noop("91\N{EN DASH}180 days"),
    gettext_noop("181\N{EN DASH}365 days"),
    gettext_noop("Over a year"),
)
"""The ages in words: English in files, translated on the page."""
KINDS = {"prepaid": "customer_balance", "promotional": "promotional_credit"}
"""Kinds of grants, and the accounts that hold what is left of them."""
HOLDERS_MAX = 50

# What is left of all open grants by kind and age, of it what expires within 30 days; and beside it
# what the accounts hold. One statement, so that both are of one moment.
BY_AGE = """
SELECT credit.kind, width_bucket(extract(epoch FROM %(now)s - credit.granted_at), %(bounds)s),
    count(*), sum(-account.balance_nanos)::bigint,
    coalesce(sum(-account.balance_nanos) FILTER (WHERE credit.expires_at < %(soon)s), 0)::bigint
FROM credit_grant AS credit JOIN ledger_account AS account ON account.id = credit.account_id
WHERE credit.closed_at IS NULL AND account.balance_nanos <> 0 GROUP BY 1, 2
UNION ALL
SELECT kind, -1, 0, sum(-balance_nanos)::bigint, 0 FROM ledger_account
WHERE kind IN ('customer_balance', 'promotional_credit') GROUP BY 1
UNION ALL
SELECT 'unposted', -1, 0, coalesce(sum(nanos), 0)::bigint, 0 FROM credit_unposted_usage
"""
# Who holds the most of it.
HOLDERS = """
SELECT account.organization_id, coalesce(organization.name, account.organization_id),
    coalesce(sum(-balance_nanos) FILTER (WHERE kind = 'customer_balance'), 0)::bigint,
    coalesce(sum(-balance_nanos) FILTER (WHERE kind = 'promotional_credit'), 0)::bigint
FROM ledger_account AS account
LEFT JOIN organizations_organization AS organization ON organization.id = account.organization_id
WHERE kind IN ('customer_balance', 'promotional_credit') AND balance_nanos <> 0
GROUP BY 1, 2 ORDER BY sum(-balance_nanos) DESC, 1 LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class Age:
    """What is left of the grants of one kind and age."""

    grant_count: int = 0
    nanos: int = 0
    expiring_nanos: int = 0


@dataclass(frozen=True, slots=True)
class Deferred:
    """Unspent credit by kind and age, and what the ledger's accounts hold."""

    ages: Mapping[tuple[str, int], Age] = field(default_factory=dict)
    accounts: Mapping[str, int] = field(default_factory=dict)
    unposted_nanos: int = 0

    def age(self, kind: str, place: int) -> Age:
        """Return what is left of one kind and age."""
        return self.ages.get((kind, place), Age())

    def total_nanos(self, kind: str) -> int:
        """Return what is left of all grants of a kind."""
        return sum(age.nanos for (of, _), age in self.ages.items() if of == kind)

    def difference_nanos(self, kind: str) -> int:
        """Return what the accounts hold beyond the grants: nothing in sound books."""
        return self.accounts.get(KINDS[kind], 0) - self.total_nanos(kind)


@dataclass(frozen=True, slots=True)
class Holder:
    """An organization with unspent credit."""

    organization_id: str
    name: str
    prepaid_nanos: int
    promotional_nanos: int


def deferred(now: datetime) -> Deferred:
    """Return what is unspent, by how long ago it was given."""
    bounds = [timedelta(days=days).total_seconds() for days in AGES]
    values: dict[str, Any] = {"now": now, "soon": now + timedelta(days=30), "bounds": bounds}
    with connection.cursor() as cursor:
        cursor.execute(BY_AGE, values)
        rows = cursor.fetchall()
    sums = {kind: nanos for kind, place, _, nanos, _ in rows if place < 0}
    return Deferred(
        ages={(kind, place): Age(*rest) for kind, place, *rest in rows if place >= 0},
        accounts={kind: sums.get(kind, 0) for kind in KINDS.values()},
        unposted_nanos=sums["unposted"],
    )


def holders() -> Sequence[Holder]:
    """Return who holds the most credit, that first."""
    with connection.cursor() as cursor:
        cursor.execute(HOLDERS, {"most": HOLDERS_MAX})
        return [Holder(*row) for row in cursor.fetchall()]
