"""The lock on an organization's money, and what a month has taken from each budget."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import NamedTuple

from django.db import connection

from billing.credit.models import Budget, BudgetKind
from billing.credit.selectors import present_budget_ids

LOCK = "SELECT id FROM credit_budget WHERE id = ANY(%s) ORDER BY id FOR UPDATE"

ADD_SPEND = """
INSERT INTO credit_spend AS spend (budget_id, period, organization_id, charged_nanos)
SELECT * FROM unnest(%s::text[], %s::date[], %s::text[], %s::bigint[])
ON CONFLICT (budget_id, period)
DO UPDATE SET charged_nanos = spend.charged_nanos + excluded.charged_nanos
"""


class SpendKey(NamedTuple):
    """One budget in one UTC month, named by its first day."""

    budget_id: str
    period: date
    organization_id: str


def lock_budgets(organization_ids: Iterable[str]) -> None:
    """Lock the money of these organizations until the transaction ends, in the order of ids.

    Everyone who reads a balance to act on it, or changes one, holds this lock: that makes
    `available` exact and deadlocks impossible.
    """
    wanted = sorted(set(organization_ids))
    missing = sorted(set(wanted) - present_budget_ids(wanted))
    if missing:
        Budget.objects.bulk_create(
            [Budget(id=id, kind=BudgetKind.ORGANIZATION, organization_id=id) for id in missing],
            ignore_conflicts=True,
        )
    with connection.cursor() as cursor:
        cursor.execute(LOCK, [wanted])


def add_spend(charges: Mapping[SpendKey, int]) -> None:
    """Add charged nanos to the months of budgets; the organizations' locks are held."""
    if not charges:
        return
    rows = sorted(charges.items())
    with connection.cursor() as cursor:
        cursor.execute(
            ADD_SPEND,
            [
                [key.budget_id for key, _ in rows],
                [key.period for key, _ in rows],
                [key.organization_id for key, _ in rows],
                [nanos for _, nanos in rows],
            ],
        )
