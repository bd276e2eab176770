"""What people read of an organization's money, compared with the rows of budgets, leases and
grants as an outsider reads them."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import psycopg

from billing.credit import selectors
from control.errors import ObjectNotFound
from control.organizations.models import Organization
from tests.simulation.oracle import require
from tests.simulation.watch import BUDGETS, LEASES, BudgetRow, LeaseRow
from tests.simulation.world import World

OWNERS = "SELECT id, organization_id FROM credit_budget"
TERMS = """
SELECT id, CASE billing_mode WHEN 'postpaid' THEN credit_limit_nanos ELSE 0 END,
    spend_limit_nanos, (
    SELECT coalesce(jsonb_object_agg(period, limit_nanos), '{}') FROM limits_spending_limit
    WHERE limited_id = organization.id AND is_hard
) FROM organizations_organization AS organization
"""
GRANTS = """
SELECT granted.id, granted.organization_id, granted.kind, granted_at, expires_at, reversed_at,
    expired_nanos, idempotency_key, account_id, -coalesce((
        SELECT sum(nanos) FROM ledger_entry AS entry WHERE entry.account_id = granted.account_id
    ), 0)::bigint
FROM credit_grant AS granted
"""
OWED = """
SELECT organization_id, sum(nanos)::bigint
FROM ledger_entry AS entry JOIN ledger_account AS account ON account.id = account_id
WHERE account.kind = 'accounts_receivable' GROUP BY 1
"""
LIMITS = """
/* Budgets that go on, with the limits that are not control's. */
SELECT budget.budget_id, budget.starts_at, limit_nanos, wanted.nanos FROM credit_budget AS budget
LEFT JOIN organizations_organization AS organization ON organization.id = budget.organization_id
CROSS JOIN LATERAL (SELECT CASE
    WHEN kind = 'balance' THEN funded_nanos
        + CASE billing_mode WHEN 'postpaid' THEN organization.credit_limit_nanos ELSE 0 END
    WHEN period <> 'month' THEN (
        SELECT hard.limit_nanos FROM limits_spending_limit AS hard
        WHERE hard.budget_id = budget.budget_id AND is_hard)
    ELSE coalesce(
        (SELECT spend_limit_nanos FROM organizations_organization
         WHERE id = split_part(budget_id, ':', 2)),
        (SELECT spend_limit_nanos FROM organizations_project
         WHERE id = split_part(budget_id, ':', 2)),
        (SELECT spend_limit_nanos FROM api_keys_api_key WHERE id = split_part(budget_id, ':', 2)))
    END AS nanos) AS wanted
WHERE (ends_at IS NULL OR ends_at > %s) AND limit_nanos IS DISTINCT FROM wanted.nanos
"""
LOOKED_AT = 9
"""The step after which all figures are compared, as they are at rest."""
Figures = tuple[int, int, int | None]
LATEST = datetime.max.replace(tzinfo=UTC)
LONG_AGO = datetime.min.replace(tzinfo=UTC)


def check_figures(monitor: psycopg.Connection, world: World, step: int | None = None) -> None:
    """Compare the figures of all organizations; of one alone, its funds, at most steps of a seed.

    Raises BrokenError.
    """
    budgets = {row[0]: BudgetRow(*row) for row in monitor.execute(BUDGETS)}
    leases = [LeaseRow(*row) for row in monitor.execute(LEASES)]
    owners: dict[int, str] = dict(monitor.execute(OWNERS).fetchall())
    held: Counter[int] = Counter()
    for lease in leases:
        held[lease.budget] += lease.held_nanos
    terms = monitor.execute(TERMS).fetchall()
    is_brief = step is not None and step != LOOKED_AT
    for owner, credit_limit, limit, fine in terms if step is None else [terms[step % len(terms)]]:
        mine = [row for row in budgets.values() if owners[row.id] == owner]
        unopened = {
            f"balance:{owner}": credit_limit,
            f"limit:{owner}": limit,
            **{f"limit:{owner}:{period}": nanos for period, nanos in fine.items()},
        }
        figures = _figures(unopened, mine=mine, held=held, now=world.clock.now)
        is_odd = step is not None and step // len(terms) % 2 == 1
        if not (is_brief and is_odd):
            _check_funds(owner, figures, world.clock.now)
        if not is_brief or is_odd:
            _check_one_by_one(owner, figures, world.clock.now)
        if not is_brief:
            _check_budgets(owner, mine, world.clock.now)
    if not is_brief:
        _check_grants(monitor, world)


def check_limits(monitor: psycopg.Connection, now: datetime) -> None:
    """Every budget that goes on, and those of periods to come, has the limit that control has."""
    wrong = monitor.execute(LIMITS, [now]).fetchall()
    require(not wrong, "A budget's limit is control's", *wrong)


def _figures(
    unopened: dict[str, int | None], *, mine: list[BudgetRow], held: Counter[int], now: datetime
) -> Figures:
    """Return what people must read: balance, held, and available, None where nothing limits.
    `unopened` is what each budget allows that nothing was used of yet, the balance's first."""
    opened = {
        row.budget_id: row
        for row in mine
        if row.starts_at <= now and (row.ends_at is None or now < row.ends_at)
    }
    balance = opened.get(next(iter(unopened)))
    funded = balance.funded_nanos - balance.posted_nanos if balance else 0
    pending = held[balance.id] if balance else 0
    left = [_left(opened[name]) if name in opened else limit for name, limit in unopened.items()]
    limits = [one for one in left if one is not None]
    available = max(min(limits), 0) if limits else None
    return funded, pending, available


def _check_funds(owner: str, figures: Figures, now: datetime) -> None:
    funds = selectors.funds(Organization.objects.get(id=owner), now)
    shown = (funds.balance_nanos, funds.held_nanos, funds.available_nanos)
    require(shown == figures, "Funds are what budgets say", owner, shown, figures)


def _check_one_by_one(owner: str, figures: Figures, now: datetime) -> None:
    available = selectors.available_nanos(Organization.objects.get(id=owner), now)
    shown = selectors.balance_nanos(owner), selectors.held_nanos(owner), available
    require(shown == figures, "A figure is the same wherever it is read", owner, shown, figures)


def _left(row: BudgetRow) -> int | None:
    if row.limit_nanos is None:
        return None
    return row.limit_nanos - row.posted_nanos - row.pending_nanos


def _check_budgets(owner: str, mine: list[BudgetRow], now: datetime) -> None:
    """A budget is found in the period that a moment lies in, its first moment too, alone."""
    organization = Organization.objects.get(id=owner)
    months = [row.starts_at for row in mine if row.ends_at] + [
        row.ends_at for row in mine if row.ends_at
    ]
    for at in {now, *months}:
        running = [
            row for row in mine
            if row.starts_at <= at and (row.ends_at is None or at < row.ends_at)
        ]  # fmt: skip
        running.sort(key=lambda row: (row.ends_at is not None, _kind(row), row.budget_id))
        shown = [one.pk for one in selectors.budgets(organization, at)]
        require(shown == [row.id for row in running], "Budgets are those of a moment", owner, at)
        for row in running:
            if at not in (now, row.starts_at):
                continue
            found = selectors.budget(row.budget_id, at)
            posted = selectors.charged_nanos(row.budget_id, at)
            is_same = found is not None and (found.pk, posted) == (row.id, row.posted_nanos)
            require(is_same, "A budget is found by its name and moment", row, at)
            left = None if found is None else found.available_nanos
            require(left == _left(row), "What is left of a budget is shown", row, left)


def _kind(row: BudgetRow) -> str:
    return {"org": "organization", "proj": "project", "key": "key"}.get(
        row.budget_id.partition(":")[2].partition("_")[0], "balance"
    )


def _check_grants(monitor: psycopg.Connection, world: World) -> None:
    """Grants are shown with what is left of them, and drawn in their order."""
    now, rows = world.clock.now, monitor.execute(GRANTS).fetchall()
    owed: dict[str, int] = dict(monitor.execute(OWED).fetchall())
    sources = selectors.credit_sources(world.organization_ids, valid_at=LONG_AGO)
    for owner in world.organization_ids:
        mine = {row[0]: row for row in rows if row[1] == owner}
        organization = Organization.objects.get(id=owner)
        shown = {one.id: one.remaining_nanos for one in selectors.grants(organization)}
        left = {one: row[9] for one, row in mine.items()}
        require(shown == left, "Grants are shown with what is left of them", owner, shown, left)
        times = [mine[one][3] for one in shown]
        require(times == sorted(times, reverse=True), "Grants are shown newest first", owner)
        drawn = [one.grant_id for one in sources.get(owner, [])]
        wanted = sorted((one for one, row in mine.items() if _is_source(row)), key=_rank(mine))
        require(drawn == wanted, "Sources are drawn in order", owner, drawn, wanted)
        backwards = [one.id for one in selectors.refundable_grants(owner, now)]
        paid = [one for one in wanted if _is_refundable(mine[one], now)]
        require(backwards == paid[::-1], "Paid credit is refunded from the last", owner, paid)
        shown_owed = selectors.owed_nanos(owner)
        require(shown_owed == owed.get(owner, 0), "What is owed is shown", owner, shown_owed)
        for row in mine.values():
            found = selectors.grant_by_key(owner, row[7])
            require(found is not None and found.id == row[0], "A grant is found by its key", row)


def check_nothing_found() -> None:
    """What is not there is not found."""
    for ask in (lambda: selectors.lease(0), lambda: selectors.grant_with_account("none")):
        try:
            ask()
        except ObjectNotFound:
            continue
        require(False, "What is not there is not found")


def _is_source(row: tuple[Any, ...]) -> bool:
    reversed_at, expired, left = row[5], row[6], row[9]
    return reversed_at is None and (left > 0 or expired > 0)


def _is_refundable(row: tuple[Any, ...], now: datetime) -> bool:
    kind, expires_at, left = row[2], row[4], row[9]
    return kind == "prepaid" and left > 0 and (expires_at is None or expires_at > now)


def _rank(mine: dict[str, tuple[Any, ...]]) -> Any:
    def rank(name: str) -> tuple[Any, ...]:
        row = mine[name]
        return (row[4] or LATEST, row[2] != "promotional", row[3], name)

    return rank
