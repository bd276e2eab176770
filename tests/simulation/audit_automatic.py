"""The proof of automatic top-ups: asked for just where they are wanted, within their cap, and no
more after two declines in a row."""

from collections import Counter
from itertools import takewhile

import psycopg

from billing.payments.services.automatic import run_auto_top_ups
from tests.simulation.cast import Cast
from tests.simulation.oracle import month_of, require

WANTED = """
SELECT one.organization_id, amount_cents FROM payments_auto_top_up AS one
JOIN payments_method AS method ON method.organization_id = one.organization_id AND is_default
LEFT JOIN credit_budget AS balance ON budget_id = 'balance:' || one.organization_id
WHERE is_on AND stopped_at IS NULL
    AND coalesce(funded_nanos - posted_nanos, 0) < threshold_cents * 10000000
    AND NOT EXISTS (SELECT FROM payments_payment AS payment
        WHERE payment.organization_id = one.organization_id AND purpose = 'automatic'
            AND status NOT IN ('failed', 'canceled', 'succeeded'))
    AND NOT (decline_count > 0 AND EXISTS (SELECT FROM payments_payment AS payment
        WHERE payment.organization_id = one.organization_id AND purpose = 'automatic'
            AND status = 'failed' AND settled_at > %(now)s - interval '1 hour'))
    AND amount_cents + coalesce((SELECT sum(amount_cents) FROM payments_payment AS payment
        WHERE payment.organization_id = one.organization_id AND purpose = 'automatic'
            AND status = 'succeeded' AND payment.created_at >= %(month)s), 0) <= monthly_cap_cents
ORDER BY 1
"""
MADE = """
SELECT organization_id, amount_cents FROM payments_payment WHERE purpose = 'automatic'
"""
ENDED = """
SELECT payment.organization_id, payment.status = 'failed', settled_at > changed_at,
    settled_at >= changed_at, to_char(payment.created_at, 'YYYY-MM'), payment.amount_cents
FROM payments_payment AS payment JOIN payments_auto_top_up USING (organization_id)
WHERE purpose = 'automatic' AND status IN ('failed', 'succeeded') ORDER BY settled_at DESC
"""
STOPPED = "SELECT organization_id, stopped_at IS NOT NULL FROM payments_auto_top_up"
DECLINES_MAX = 2


def top_up_where_wanted(monitor: psycopg.Connection, cast: Cast) -> None:
    """Let the beat top up, and require that it does so for whom it is due, and for nobody else."""
    wanted = Counter(
        monitor.execute(WANTED, {"now": cast.now, "month": month_of(cast.now)}).fetchall()
    )
    before = Counter(monitor.execute(MADE).fetchall())
    count = run_auto_top_ups(now=cast.now)
    made = Counter(monitor.execute(MADE).fetchall()) - before
    require(made == wanted, "Whoever wants it is topped up", made, wanted)
    require(count == wanted.total(), "Topping up says how many", count, wanted)


def audit_automatic(monitor: psycopg.Connection, cast: Cast) -> None:
    """Raises BrokenError on the first promise that does not hold."""
    rows = monitor.execute(ENDED).fetchall()
    _check_caps(cast, rows)
    for owner, is_stopped in monitor.execute(STOPPED).fetchall():
        mine = [row for row in rows if row[0] == owner]
        in_a_row = [*takewhile(lambda row: row[1], (row for row in mine if row[2]))]
        declined = [row for row in mine if row[1] and row[3]]
        require(is_stopped or len(in_a_row) < DECLINES_MAX, "Declines stop top-ups", owner, mine)
        require(not is_stopped or len(declined) >= DECLINES_MAX, "Only they do", owner, mine)


def _check_caps(cast: Cast, rows: list[tuple[str, bool, bool, bool, str, int]]) -> None:
    """What tops up by itself is an amount that was set, and stays within the month's cap."""
    taken: Counter[tuple[str, str]] = Counter()
    for owner, is_declined, _, _, month, cents in rows:
        amounts = {amount for _, amount, _ in cast.payers.automatic.get(owner, ())}
        require(cents in amounts, "An automatic top-up is one that was set", owner, cents)
        taken[owner, month] += 0 if is_declined else cents
    for (owner, month), cents in taken.items():
        most = max(cap for *_, cap in cast.payers.automatic[owner])
        require(cents <= most, "Automatic top-ups stay within their cap", owner, month, cents)
