"""`python -m tests.support.migrated_books NOW`: what today's code says of the old books, migrated.

Told of the database by the environment, as the services are. It first closes the grants that are
past their time, as the worker does within the hour, and prints JSON shaped as `old_words` is.
"""

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import django

FIRST_DAY = datetime(2026, 10, 1, tzinfo=UTC)
MONTHS = (FIRST_DAY, datetime(2026, 11, 1, tzinfo=UTC))


def main(now: datetime) -> None:
    """Print the words of today's code at `now`."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.support.settings"
    django.setup()
    from billing.credit.services.grants import expire_grants
    from control.tenants.models import Organization

    expire_grants(now=now)
    words = {one.id: organization_words(one, now) for one in Organization.objects.all()}
    json.dump(words, sys.stdout)


def organization_words(organization: Any, now: datetime) -> dict[str, Any]:
    """Return an organization's money, what its budgets were charged, and its days."""
    from billing.credit import selectors as credit
    from billing.reading.selectors import usage_totals

    days = [FIRST_DAY + timedelta(days=count) for count in range((now - FIRST_DAY).days + 1)]
    sums = {
        day: usage_totals(organization, day, day + timedelta(days=1), with_ttft=True)
        for day in days
    }
    return {
        "balance_nanos": credit.balance_nanos(organization.id),
        "owed_nanos": credit.owed_nanos(organization.id),
        "held_nanos": credit.held_nanos(organization.id),
        "grants": {one.id: one.remaining_nanos for one in credit.grants(organization)},
        "charged_nanos": {
            f"{row.budget_id} {month:%Y-%m-%d}": row.posted_nanos
            for month in MONTHS
            for row in credit.budgets(organization, month)
        },
        "usage_by_day": {f"{day:%Y-%m-%d}": usage_words(one) for day, one in sums.items()},
    }


def usage_words(sums: Any) -> dict[str, Any]:
    """Return the sums as the old code told them."""
    names = [name for name in sums.__slots__ if name.endswith(("_count", "_tokens"))]
    words = {name: getattr(sums, name) for name in (*names, "charged_nanos", "waived_nanos")}
    return words | {"ttft_counts": list(sums.ttft_counts)}


if __name__ == "__main__":
    main(datetime.fromisoformat(sys.argv[1]))
