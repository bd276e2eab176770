"""Revenue by month and model: sums of sealed days that were kept, and of open ones as they are."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from django.db import connection, transaction

from control.catalog.selectors import models as catalog_models

DAYS_MAX = 400
"""Sealed days that one run sums: the rest is the next one's."""

# Sealed days whose revenue was not kept yet, oldest first; none beyond a day that is not sealed.
UNKEPT = """
SELECT day.day FROM metering_day AS day
WHERE day.sealed_at IS NOT NULL
    AND day.day > coalesce((SELECT max(kept.day) FROM cockpit_kept_day AS kept), '-infinity')
    AND day.day < coalesce(
        (SELECT min(open.day) FROM metering_day AS open WHERE open.sealed_at IS NULL), 'infinity')
ORDER BY day.day LIMIT %s
"""
KEEP = """
INSERT INTO cockpit_day_revenue (accounted_on, supply_id, nanos)
SELECT accounted_on, supply_id, sum(input_nanos + cached_input_nanos + output_nanos)::bigint
FROM following_hour_rollup WHERE accounted_on = %s GROUP BY 1, 2
HAVING sum(input_nanos + cached_input_nanos + output_nanos) <> 0
"""
MARK = "INSERT INTO cockpit_kept_day (day) VALUES (%s)"

# Revenue of every month by model, of kept days and of the few that only rollups have; what credit
# notes and corrections took back of it; what is to be posted; what the accounts hold. It is one
# statement, so that all of it is of one moment.
FIGURES = """
WITH open_day AS (
    SELECT accounted_on, supply_id,
        sum(input_nanos + cached_input_nanos + output_nanos) AS nanos
    FROM following_hour_rollup
    WHERE accounted_on > coalesce((SELECT max(day) FROM cockpit_kept_day), '-infinity')
    GROUP BY 1, 2
), every_day AS (
    SELECT accounted_on, supply_id, nanos FROM cockpit_day_revenue
    UNION ALL SELECT * FROM open_day
)
SELECT 'charged', date_trunc('month', accounted_on)::date, supply.model_id, sum(nanos)::bigint
FROM every_day JOIN metering_supply AS supply ON supply.id = every_day.supply_id
GROUP BY 2, 3 HAVING sum(nanos) <> 0
UNION ALL
SELECT 'taken_back', date_trunc('month', moved.accounted_on)::date, '', sum(entry.nanos)::bigint
FROM ledger_transaction AS moved
JOIN ledger_entry AS entry ON entry.transaction_id = moved.id
JOIN ledger_account AS account ON account.id = entry.account_id AND account.kind = 'revenue'
WHERE moved.kind = 'correction' GROUP BY 2 HAVING sum(entry.nanos) <> 0
UNION ALL
SELECT 'unposted', NULL, '', coalesce(sum(nanos), 0)::bigint FROM credit_unposted_usage
UNION ALL
SELECT 'posted', NULL, '', coalesce(-sum(balance_nanos), 0)::bigint
FROM ledger_account WHERE kind = 'revenue'
"""


@dataclass(frozen=True, slots=True)
class Revenue:
    """What usage earned by month and model, and whether the ledger says the same."""

    charged: dict[tuple[date, str], int]
    """Nanos by the first day of a month and a model's id."""
    taken_back: dict[date, int]
    unposted_nanos: int
    posted_nanos: int

    @property
    def charged_nanos(self) -> int:
        """All that usage was charged."""
        return sum(self.charged.values())

    @property
    def expected_nanos(self) -> int:
        """What the revenue accounts must hold."""
        return self.charged_nanos - sum(self.taken_back.values()) - self.unposted_nanos

    @property
    def difference_nanos(self) -> int:
        """What the accounts hold beyond that: nothing in sound books."""
        return self.posted_nanos - self.expected_nanos

    def months(self) -> list[date]:
        """Return the months with figures, the oldest first."""
        return sorted({month for month, _ in self.charged} | set(self.taken_back))

    def model_ids(self, months: Iterable[date]) -> list[str]:
        """Return the models sold in some months, what earned most first."""
        wanted, sums = set(months), defaultdict[str, int](int)
        for (month, model_id), nanos in self.charged.items():
            if month in wanted:
                sums[model_id] += nanos
        return sorted(sums, key=lambda model_id: (-sums[model_id], model_id))


def revenue() -> Revenue:
    """Return revenue by month and model, all figures of one moment."""
    with connection.cursor() as cursor:
        cursor.execute(FIGURES)
        rows = cursor.fetchall()
    single = {what: nanos for what, month, _, nanos in rows if month is None}
    return Revenue(
        charged={(month, model): nanos for what, month, model, nanos in rows if what == "charged"},
        taken_back={month: nanos for what, month, _, nanos in rows if what == "taken_back"},
        unposted_nanos=single["unposted"],
        posted_nanos=single["posted"],
    )


def model_names() -> dict[str, str]:
    """Return what models are called."""
    return {model.id: model.public_id for model in catalog_models()}


def keep_revenue() -> int:
    """Sum the revenue of sealed days, each once, in order; return how many were summed."""
    with connection.cursor() as cursor:
        cursor.execute(UNKEPT, [DAYS_MAX])
        days = [day for (day,) in cursor.fetchall()]
    return sum(_keep(day) for day in days)


@transaction.atomic
def _keep(day: date) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"{MARK} ON CONFLICT DO NOTHING", [day])
        if cursor.rowcount == 0:
            return False
        cursor.execute(KEEP, [day])
    return True
