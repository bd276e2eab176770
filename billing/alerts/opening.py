"""Rows of soft budgets in a new day or week: no gateway asks for them, and no charge makes them."""

from datetime import datetime

from billing.alerts.looking import unopened
from billing.credit.selectors import key_at
from billing.credit.services.budgets import open_budgets

OPENED_AT_ONCE = 50


def open_soft_budgets(*, now: datetime) -> None:
    """Open the rows that are missing of budgets whose organization spends at all."""
    for budget_id in unopened(now, most=OPENED_AT_ONCE):
        open_budgets([key_at(budget_id, now)])
