"""What there is to tell: each look reads all organizations, a page at a time, and adds the alerts
that were not raised yet. Two looks at once wait for each other row by row; the second finds none.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from billing.alerts.models import Alert
from billing.alerts.spending import REACH
from billing.credit.credits import Credit, forecast, open_credit
from serving.contract.budget import LIMIT_PERIODS, balance_budget_id, limit_budget_id, period_start

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
        credit_limit_nanos
    FROM credit_budget
    WHERE kind = 'balance' AND credit_limit_nanos > 0 AND NOT is_credit_limit_suspended
"""
"""Every limited budget as it stands: hard ones, soft ones, and credit limits."""
BUDGETS_MAX = 500
"""Of how many budgets a look raises what there is, all rules of each together."""
NEXT = """
budget_id IN (
    SELECT DISTINCT budget_id FROM due WHERE budget_id > %(after)s ORDER BY budget_id LIMIT %(most)s
)
"""
RAISE = f"""
INSERT INTO alerts_alert (organization_id, kind, budget_id, rule, starts_at, created_at, is_told,
    figures)
SELECT organization_id, kind, budget_id, rule, starts_at, %(now)s, true, figures FROM due
WHERE {NEXT}
ORDER BY budget_id, rule, starts_at
ON CONFLICT (kind, budget_id, rule, starts_at) WHERE ended_at IS NULL DO NOTHING
RETURNING id, organization_id, kind, budget_id, rule, starts_at, figures::text
"""  # noqa: S608 -- constants of this module
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
/* End what was told of a credit limit of which a tenth less is used by now. */
UPDATE alerts_alert AS raised SET ended_at = %(now)s FROM credit_budget AS budget
WHERE raised.ended_at IS NULL AND raised.kind = 'spending_limit.reached' AND budget.kind = 'balance'
    AND budget.budget_id = raised.budget_id
    AND (budget.posted_nanos - budget.funded_nanos)::numeric * 1000
        < budget.credit_limit_nanos::numeric * raised.rule::int * 9
"""
BALANCES = f"""
    SELECT budget.organization_id, budget.budget_id, budget.starts_at,
        budget.funded_nanos - budget.posted_nanos AS nanos, pace.nanos AS nanos_per_day,
        chosen.low_balance_nanos AS low_nanos, pace.nanos * runway.days AS low_runway_nanos,
        EXISTS (
            SELECT FROM credit_grant AS grants
            WHERE grants.organization_id = owner.id AND closed_at IS NULL
                AND expires_at < %(now)s + make_interval(days => runway.days::int)
        ) AS has_expiring
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
    WHERE budget.kind = 'balance' AND budget.posted_nanos > 0
        AND owner.billing_mode = 'prepaid' AND owner.status = 'active'
"""  # noqa: S608 -- constants of these modules
"""Prepaid balances in use: what is left, what a day takes of it, below what it is low, and whether
some of it may expire so soon that it is low without."""
LOW = f"""
/* The next balances that are low, and those that may be low by what of them can be used. */
WITH due AS (
    SELECT organization_id, budget_id, rule, starts_at, low_runway_nanos, nanos_per_day,
        jsonb_build_object('balance_nanos', nanos, 'nanos_per_day', nanos_per_day,
            'threshold_nanos', CASE rule WHEN 'amount' THEN low_nanos
                WHEN 'runway' THEN low_runway_nanos ELSE 0 END) AS figures
    FROM ({BALANCES}) AS balance
    CROSS JOIN LATERAL (VALUES ('empty', nanos <= 0), ('amount', nanos < low_nanos),
        ('runway', low_runway_nanos > 0 AND (nanos < low_runway_nanos OR has_expiring))
    ) AS judged (rule, may_hold)
    WHERE may_hold AND NOT EXISTS (
        SELECT FROM alerts_alert AS raised
        WHERE raised.kind = 'balance.low' AND raised.budget_id = balance.budget_id
            AND raised.rule = judged.rule AND raised.ended_at IS NULL
    )
)
SELECT organization_id, 'balance.low', budget_id, rule, starts_at, figures::text,
    low_runway_nanos, nanos_per_day
FROM due WHERE {NEXT} ORDER BY budget_id
"""  # noqa: S608 -- constants of this module
RECOVERED = f"""
/* What was told of balances that are a quarter above what is low by now, and for those told by the
runway what must be usable. */
SELECT raised.id, raised.organization_id, nanos_per_day,
    CASE rule WHEN 'runway' THEN low_runway_nanos END
FROM alerts_alert AS raised JOIN ({BALANCES}) AS balance USING (budget_id)
WHERE raised.ended_at IS NULL AND raised.kind = 'balance.low'
    AND nanos::numeric * 4 >= 5 * greatest(1, CASE rule WHEN 'amount' THEN low_nanos
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
FOUND = f"""
/* Raise what was found. */
WITH due AS (
    SELECT organization_id, kind, budget_id, rule, starts_at, figures::jsonb AS figures
    FROM unnest(%(organization_id)s::text[], %(kind)s::text[], %(budget_id)s::text[],
        %(rule)s::text[], %(starts_at)s::timestamptz[], %(figures)s::text[]
    ) AS found (organization_id, kind, budget_id, rule, starts_at, figures)
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


class Due(NamedTuple):
    """An alert that is to be raised; `figures` are JSON."""

    organization_id: str
    kind: str
    budget_id: str
    rule: str
    starts_at: datetime
    figures: str


Look = Callable[[datetime, str], list[Raised]]
"""Finds what there is to tell now of the next budgets after one, and raises it in the caller's
transaction."""


def reached(now: datetime, after: str = "") -> list[Raised]:
    """Raise the percentages of budgets and credit limits that are reached."""
    if not after:
        _run(REPAID, now)
    return _raise(REACHED, now, after)


def low(now: datetime, after: str = "") -> list[Raised]:
    """Raise which balances are low, and end what was told of those that are not any more."""
    if not after:
        _end_recovered(now)
    while found := _rows(LOW, _parameters(now) | {"after": after, "most": BUDGETS_MAX}):
        paces = {row[0]: row[-1] for row in found if row[3] == "runway"}
        usable = _usable_nanos(paces, now)
        due = [
            Due(*one)
            for *one, low_nanos, _ in found
            if one[3] != "runway" or usable[one[0]] < low_nanos
        ]
        if raised := _raise_found(due, now, after):
            return raised
        after = found[-1][2]
    return []


def _end_recovered(now: datetime) -> None:
    found = _rows(RECOVERED, _parameters(now))
    paces = {organization_id: pace for _, organization_id, pace, low in found if low is not None}
    usable = _usable_nanos(paces, now)
    ended = [
        alert_id
        for alert_id, organization_id, _, low in found
        if low is None or usable[organization_id] * 4 >= max(low, 1) * 5
    ]
    Alert.objects.filter(id__in=ended).update(ended_at=now)


def _usable_nanos(paces: Mapping[str, int], now: datetime) -> dict[str, int]:
    """Return what of each organization's credit is used before it expires, at its pace by the
    day."""
    credit = open_credit(paces, now)
    return {each: forecast(credit[each], pace, now).used_nanos for each, pace in paces.items()}


def unusual(now: datetime, after: str = "") -> list[Raised]:
    """Raise whose spending of today is far above the usual."""
    return _raise(UNUSUAL, now, after)


def expiring(now: datetime, after: str = "") -> list[Raised]:
    """Raise what is left of credit that expires soon, each grant once."""
    soon = now + timedelta(days=EXPIRY_NOTICE_DAYS)
    paging: dict[str, Any] = {"now": now, "soon": soon, "most": BUDGETS_MAX}
    while organizations := [row[0] for row in _rows(EXPIRING, paging | {"after": after})]:
        due = [
            _expiry(one)
            for credit in open_credit(organizations, now).values()
            for one in credit
            if one.is_active and one.grant.expires_at and one.grant.expires_at <= soon
        ]
        if raised := _raise_found(due, now, after):
            return raised
        after = balance_budget_id(organizations[-1])
    return []


def _expiry(credit: Credit) -> Due:
    grant = credit.grant
    figures = {
        "credit_grant_id": grant.id,
        "credit_kind": grant.kind,
        "amount_nanos": grant.amount_nanos,
        "remaining_nanos": credit.remaining_nanos,
        "expires_at": grant.expires_at.isoformat() if grant.expires_at else None,
    }
    budget_id, owner = balance_budget_id(grant.organization_id), grant.organization_id
    return Due(owner, "credit.expiring", budget_id, grant.id, grant.granted_at, json.dumps(figures))


def unopened(now: datetime, *, most: int) -> list[str]:
    """Return soft budgets whose period nobody has opened yet."""
    return [row[0] for row in _rows(UNOPENED, _parameters(now) | {"most": most})]


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


def _raise_found(due: Sequence[Due], now: datetime, after: str) -> list[Raised]:
    columns = zip(*due, strict=True) if due else [()] * len(Due._fields)
    named = {name: list(column) for name, column in zip(Due._fields, columns, strict=True)}
    return _raise(FOUND, now, after, named)


def _raise(
    statement: str, now: datetime, after: str, columns: Mapping[str, Any] | None = None
) -> list[Raised]:
    paging = {"after": after, "most": BUDGETS_MAX}
    rows = _rows(statement, _parameters(now) | paging | dict(columns or {}))
    return [Raised._make([*names, json.loads(figures)]) for *names, figures in rows]


def _rows(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall()


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
