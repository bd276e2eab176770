"""What there is to tell: each look is one statement over all organizations, which adds the alerts
that were not raised yet. Two looks at once wait for each other row by row; the second finds none.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection

from billing.alerts.defaults import (
    EXPIRY_NOTICE_DAYS,
    LOW_RUNWAY_DAYS,
    PACE_DAYS,
    PERCENTS,
    UNUSUAL_DAYS_MIN,
    UNUSUAL_FACTOR,
    UNUSUAL_NANOS_MIN,
)
from billing.alerts.spending import REACH
from billing.credit.credits import Credit, credit_by_grant
from serving.contract.budget import LIMIT_PERIODS, limit_budget_id, period_start

LIMITED = """
    SELECT organization_id, budget_id, starts_at, ends_at, posted_nanos AS spent_nanos, limit_nanos
    FROM credit_budget
    WHERE limit_nanos IS NOT NULL AND period <> 'lifetime'
        AND starts_at = ANY(%(starts)s) AND ends_at > %(now)s
    UNION ALL
    SELECT budget.organization_id, budget_id, starts_at, ends_at, posted_nanos, soft.limit_nanos
    FROM limits_spending_limit AS soft JOIN credit_budget AS budget USING (budget_id)
    WHERE NOT soft.is_hard AND starts_at = ANY(%(starts)s) AND ends_at > %(now)s
    UNION ALL
    SELECT organization_id, budget_id, starts_at, NULL, greatest(posted_nanos - funded_nanos, 0),
        limit_nanos - funded_nanos
    FROM credit_budget WHERE kind = 'balance' AND limit_nanos > funded_nanos
"""
"""Every limited budget as it stands: hard ones, soft ones, and credit lines."""
BUDGETS_MAX = 500
"""Of how many budgets a look raises what there is, all rules of each together."""
RAISE = """
INSERT INTO alerts_alert (organization_id, kind, budget_id, rule, starts_at, created_at, is_told,
    figures)
SELECT organization_id, kind, budget_id, rule, starts_at, %(now)s, true, figures FROM due
WHERE budget_id IN (
    SELECT DISTINCT budget_id FROM due WHERE budget_id > %(after)s ORDER BY budget_id LIMIT %(most)s
)
ORDER BY budget_id, rule, starts_at
ON CONFLICT (kind, budget_id, rule, starts_at) WHERE ended_at IS NULL DO NOTHING
RETURNING id, organization_id, kind, budget_id, rule, starts_at, figures::text
"""
REACHED = f"""
/* Raise what percentages of budgets are reached. */
WITH due AS (
    SELECT organization_id, 'spending_limit.reached' AS kind, budget_id, percent::text AS rule,
        starts_at,
        jsonb_build_object('percent', percent, 'spent_nanos', spent_nanos,
            'limit_nanos', limit_nanos, 'renews_at', ends_at) AS figures
    FROM ({LIMITED}) AS limited
    LEFT JOIN alerts_thresholds AS chosen USING (organization_id, budget_id)
    CROSS JOIN LATERAL unnest(coalesce(chosen.percents, %(percents)s::smallint[])) AS percent
    WHERE spent_nanos > 0 AND spent_nanos::numeric * 100 >= limit_nanos::numeric * percent
        AND NOT EXISTS (
            SELECT FROM alerts_alert AS raised
            WHERE raised.kind = 'spending_limit.reached' AND raised.budget_id = limited.budget_id
                AND raised.rule = percent::text AND raised.starts_at = limited.starts_at
                AND raised.ended_at IS NULL
        )
) {RAISE}
"""  # noqa: S608 -- constants of this module
REPAID = """
/* End what was told of a credit line of which a tenth less is used by now. */
UPDATE alerts_alert AS raised SET ended_at = %(now)s FROM credit_budget AS budget
WHERE raised.ended_at IS NULL AND raised.kind = 'spending_limit.reached' AND budget.kind = 'balance'
    AND budget.budget_id = raised.budget_id AND (budget.limit_nanos IS NULL
        OR (budget.posted_nanos - budget.funded_nanos)::numeric * 1000
            < (budget.limit_nanos - budget.funded_nanos)::numeric * raised.rule::int * 9)
"""
BALANCES = f"""
    SELECT budget.organization_id, budget.budget_id, budget.starts_at,
        budget.funded_nanos - budget.posted_nanos AS nanos, pace.nanos AS nanos_per_day,
        budget.funded_nanos - budget.posted_nanos - coalesce(lost.nanos, 0) AS usable_nanos,
        chosen.low_balance_nanos AS low_nanos, pace.nanos * runway.days AS low_runway_nanos
    FROM credit_budget AS budget
    JOIN organizations_organization AS owner ON owner.id = budget.organization_id
    LEFT JOIN alerts_settings AS chosen ON chosen.organization_id = owner.id
    CROSS JOIN LATERAL (SELECT CASE WHEN chosen.organization_id IS NULL
        THEN %(low_runway_days)s ELSE chosen.low_runway_days END AS days) AS runway
    LEFT JOIN (
        SELECT organization_id, sum(nanos)::bigint
            / least({PACE_DAYS}, greatest(1, %(today)s::date - min(day) + 1)) AS nanos
        FROM alerts_day_spend
        WHERE day > %(today)s::date - {PACE_DAYS} AND day <= %(today)s GROUP BY 1
    ) AS pace ON pace.organization_id = owner.id
    LEFT JOIN LATERAL (
        SELECT sum(greatest(0, -account.balance_nanos
            - greatest(0, pace.nanos * extract(epoch FROM expires_at - %(now)s) / 86400)
        ))::bigint AS nanos
        FROM credit_grant AS grants JOIN ledger_account AS account ON account.id = account_id
        WHERE grants.organization_id = owner.id AND closed_at IS NULL
            AND expires_at < %(now)s + make_interval(days => runway.days::int)
    ) AS lost ON true
    WHERE budget.kind = 'balance' AND budget.posted_nanos > 0
        AND owner.billing_mode = 'prepaid' AND owner.status = 'active'
"""  # noqa: S608 -- constants of these modules
"""Prepaid balances in use: what is left, what a day takes of it, what of it can be used before it
expires, and below what it is low."""
LOW = f"""
/* Raise which balances are low, the gravest rule first. */
WITH due AS (
    SELECT organization_id, 'balance.low' AS kind, budget_id, rule, starts_at,
        jsonb_build_object('balance_nanos', nanos, 'nanos_per_day', nanos_per_day,
            'threshold_nanos', CASE rule WHEN 'amount' THEN low_nanos
                WHEN 'runway' THEN low_runway_nanos ELSE 0 END) AS figures
    FROM ({BALANCES}) AS balance
    CROSS JOIN LATERAL (VALUES ('empty', nanos <= 0), ('amount', nanos < low_nanos),
        ('runway', usable_nanos < low_runway_nanos)) AS judged (rule, holds)
    WHERE holds AND NOT EXISTS (
        SELECT FROM alerts_alert AS raised
        WHERE raised.kind = 'balance.low' AND raised.budget_id = balance.budget_id
            AND raised.rule = judged.rule AND raised.ended_at IS NULL
    )
) {RAISE}
"""  # noqa: S608 -- constants of this module
RECOVERED = f"""
/* End what was told of balances that are a quarter above what is low by now. */
UPDATE alerts_alert AS raised SET ended_at = %(now)s FROM ({BALANCES}) AS balance
WHERE raised.ended_at IS NULL AND raised.kind = 'balance.low'
    AND raised.budget_id = balance.budget_id
    AND CASE raised.rule WHEN 'runway' THEN balance.usable_nanos ELSE balance.nanos END::numeric * 4
        >= 5 * greatest(1, CASE raised.rule WHEN 'amount' THEN low_nanos
            WHEN 'runway' THEN low_runway_nanos END)
"""  # noqa: S608 -- constants of this module
UNUSUAL = f"""
/* Raise whose day, or busiest hour, is far above the median of the last four weeks'. */
WITH usual AS (
    SELECT organization_id, percentile_disc(0.5) WITHIN GROUP (ORDER BY nanos) AS day_nanos,
        percentile_disc(0.5) WITHIN GROUP (ORDER BY busiest_hour_nanos) AS hour_nanos
    FROM alerts_day_spend WHERE day < %(today)s AND day >= %(today)s::date - {REACH.days}
    GROUP BY 1 HAVING count(*) >= {UNUSUAL_DAYS_MIN}
), due AS (
    SELECT organization_id, 'spending.unusual' AS kind, 'balance:' || organization_id AS budget_id,
        rule, %(midnight)s AS starts_at,
        jsonb_build_object('spent_nanos', spent, 'usual_nanos', common) AS figures
    FROM alerts_day_spend AS today JOIN usual USING (organization_id)
    LEFT JOIN alerts_settings AS chosen USING (organization_id)
    CROSS JOIN LATERAL (VALUES ('hour', today.busiest_hour_nanos, usual.hour_nanos),
        ('day', today.nanos, usual.day_nanos)) AS judged (rule, spent, common)
    WHERE today.day = %(today)s AND spent >= {UNUSUAL_NANOS_MIN} AND spent >= common
        * CASE WHEN chosen.organization_id IS NULL THEN {UNUSUAL_FACTOR}
            ELSE chosen.unusual_factor END
) {RAISE}
"""  # noqa: S608 -- constants of this module
EXPIRING = """
/* Grants that expire soon and have something left in the ledger, of the next organizations. */
SELECT grants.organization_id FROM credit_grant AS grants
JOIN ledger_account AS account ON account.id = grants.account_id
WHERE grants.closed_at IS NULL AND grants.expires_at > %(now)s AND grants.expires_at <= %(soon)s
    AND account.balance_nanos < 0 AND 'balance:' || grants.organization_id > %(after)s
    AND NOT EXISTS (
        SELECT FROM alerts_alert AS raised
        WHERE raised.kind = 'credit.expiring' AND raised.rule = grants.id
            AND raised.budget_id = 'balance:' || grants.organization_id
    )
GROUP BY 1 ORDER BY 1 LIMIT %(most)s
"""
EXPIRES = f"""
/* Raise what credit expires soon. */
WITH due AS (
    SELECT organization_id, 'credit.expiring' AS kind, 'balance:' || organization_id AS budget_id,
        grant_id AS rule, granted_at AS starts_at, figures::jsonb AS figures
    FROM unnest(%(organizations)s::text[], %(grants)s::text[], %(granted)s::timestamptz[],
        %(figures)s::text[]) AS expiring (organization_id, grant_id, granted_at, figures)
) {RAISE}
"""  # noqa: S608 -- constants of this module
UNOPENED = """
/* Soft budgets by the week and the day that have no row in their period, of who spends at all. */
SELECT soft.budget_id FROM limits_spending_limit AS soft
JOIN credit_budget AS balance ON balance.budget_id = 'balance:' || soft.organization_id
WHERE NOT soft.is_hard AND soft.period <> 'month' AND balance.posted_nanos > 0 AND NOT EXISTS (
    SELECT FROM credit_budget AS opened WHERE opened.budget_id = soft.budget_id
        AND opened.starts_at = ANY(%(starts)s) AND opened.ends_at > %(now)s
)
ORDER BY soft.budget_id LIMIT %(most)s
"""


GRAVITY = ("hour", "day", "runway", "amount", "empty")


class Raised(NamedTuple):
    """An alert that was just raised."""

    id: int
    organization_id: str
    kind: str
    budget_id: str
    rule: str
    starts_at: datetime
    figures: dict[str, Any]


Look = Callable[[datetime, str], list[Raised]]
"""Finds what there is to tell now of the next budgets after one, and raises it in the caller's
transaction."""


def reached(now: datetime, after: str = "") -> list[Raised]:
    """Raise the percentages of budgets and credit lines that are reached."""
    if not after:
        _run(REPAID, now)
    return list(_raise(REACHED, now, after))


def low(now: datetime, after: str = "") -> list[Raised]:
    """Raise which balances are low, and end what was told of those that are not any more."""
    if not after:
        _run(RECOVERED, now)
    return list(_raise(LOW, now, after))


def unusual(now: datetime, after: str = "") -> list[Raised]:
    """Raise whose spending of today is far above the usual."""
    return list(_raise(UNUSUAL, now, after))


def expiring(now: datetime, after: str = "") -> list[Raised]:
    """Raise what is left of credit that expires soon, each grant once."""
    soon = now + timedelta(days=EXPIRY_NOTICE_DAYS)
    while organizations := _with_expiring_credit(now, soon, after):
        due = [
            (one, one.grant)
            for organization_id in organizations
            for one in credit_by_grant(organization_id, now)
            if one.is_active and one.grant.expires_at and one.grant.expires_at <= soon
        ]
        columns = {
            "organizations": [grant.organization_id for _, grant in due],
            "grants": [grant.id for _, grant in due],
            "granted": [grant.granted_at for _, grant in due],
            "figures": [json.dumps(_expiry_figures(one)) for one, _ in due],
        }
        if raised := list(_raise(EXPIRES, now, after, columns)):
            return raised
        after = f"balance:{organizations[-1]}"
    return []


def _with_expiring_credit(now: datetime, soon: datetime, after: str) -> list[str]:
    paging: dict[str, Any] = {"now": now, "soon": soon, "after": after, "most": BUDGETS_MAX}
    with connection.cursor() as cursor:
        cursor.execute(EXPIRING, paging)
        return [row[0] for row in cursor.fetchall()]


def _expiry_figures(credit: Credit) -> dict[str, Any]:
    grant = credit.grant
    return {
        "credit_grant_id": grant.id,
        "credit_kind": grant.kind,
        "amount_nanos": grant.amount_nanos,
        "remaining_nanos": credit.remaining_nanos,
        "expires_at": grant.expires_at.isoformat() if grant.expires_at else None,
    }


def unopened(now: datetime, *, most: int) -> list[str]:
    """Return soft budgets whose period nobody has opened yet."""
    with connection.cursor() as cursor:
        cursor.execute(UNOPENED, _parameters(now) | {"most": most})
        return [row[0] for row in cursor.fetchall()]


def gravest(raised: Iterable[Raised]) -> list[Raised]:
    """Return one alert per budget: the highest percentage, the emptiest balance; of credit that
    expires one per grant."""
    found: dict[tuple[str, ...], Raised] = {}
    for one in sorted(raised, key=_gravity):
        by_grant = (one.rule,) if one.kind == "credit.expiring" else ()
        found[one.kind, one.budget_id, *by_grant] = one
    return list(found.values())


def _gravity(one: Raised) -> int:
    if one.kind == "credit.expiring":
        return 0
    return int(one.rule) if one.rule.isdecimal() else GRAVITY.index(one.rule)


def _raise(
    statement: str, now: datetime, after: str, columns: Mapping[str, Any] | None = None
) -> Iterator[Raised]:
    with connection.cursor() as cursor:
        paging = {"after": after, "most": BUDGETS_MAX}
        cursor.execute(statement, _parameters(now) | paging | dict(columns or {}))
        for row in cursor.fetchall():
            *names, figures = row
            yield Raised._make([*names, json.loads(figures)])


def _run(statement: str, now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, _parameters(now))


def _parameters(now: datetime) -> dict[str, Any]:
    starts = {period_start(limit_budget_id("", period), now) for period in LIMIT_PERIODS}
    return {
        "now": now,
        "today": now.date(),
        "midnight": period_start(limit_budget_id("", "day"), now),
        "starts": sorted(starts),
        "percents": list(PERCENTS),
        "low_runway_days": LOW_RUNWAY_DAYS,
    }
