"""Questions about credit. Those that decide on money are asked under the budget's lock."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import BigIntegerField, F, Func, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce, Greatest

from billing.arrays import array
from billing.credit.models import (
    Budget,
    CreditGrant,
    GrantKind,
    Lease,
    Payment,
    UnpostedUsage,
    Welcome,
)
from billing.ledger.causes import BALANCE_KINDS, AccountKind
from billing.ledger.selectors import balance_nanos as account_balance_nanos
from control.api_keys.models import ApiKey
from control.errors import ObjectNotFound
from control.limits.spending import short_period_hard_limits
from control.organizations.models import Organization, Project
from serving.contract.budget import (
    LIMIT_PERIODS,
    balance_budget_id,
    limit_budget_id,
    limited_id,
    period_end,
    period_start,
)

VOID_AFTER = timedelta(hours=24)
"""How long after its end a lease waits for the journal of a vanished gateway."""
SILENT_AFTER = timedelta(hours=1)
"""No request takes longer: a lease that is open so long after its end has lost its gateway."""
HELD = Greatest(F("keep_nanos") - F("settled_nanos"), 0)
"""What an open lease holds."""

BUDGET_ROWS = """
SELECT budget_id, starts_at, id FROM credit_budget
WHERE (budget_id, starts_at) IN (SELECT * FROM unnest(%s::text[], %s::timestamptz[]))
"""
FINE_ROWS = """
SELECT budget.budget_id, budget.starts_at, budget.id FROM unnest(%s::text[]) AS owner (id)
JOIN credit_budget budget ON budget.organization_id = owner.id
WHERE budget.period IN ('week', 'day') AND budget.starts_at <= %s AND budget.ends_at > %s
"""
ORGANIZATIONS_LIMITED = """
SELECT id FROM organizations_organization WHERE id = ANY(%(ids)s)
UNION SELECT organization_id FROM organizations_project WHERE id = ANY(%(ids)s)
UNION SELECT organization_id FROM api_keys_api_key WHERE id = ANY(%(ids)s)
"""
LEASE_TERMS = """
SELECT id, organization_id, gateway_id, budget_id FROM credit_lease
WHERE id = ANY(%s::bigint[])
"""


class BudgetKey(NamedTuple):
    """One budget in one period, named by its start."""

    budget_id: str
    starts_at: datetime


class LeaseTerms(NamedTuple):
    """What identifies a lease as an event's own; none of it ever changes."""

    row: int
    organization_id: str
    gateway_id: str
    budget_row: int


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A hard limit, or the credit balance, in its running period, in nano-dollars.

    Of a balance the limit is all credit so far with the credit limit, and `renews_at` is None.
    `held_nanos` is set aside for requests in progress.
    """

    budget_id: str
    name: str
    """The name of the organization, project or API key that is limited."""
    limit_nanos: int
    spent_nanos: int
    held_nanos: int
    renews_at: datetime | None

    @property
    def available_nanos(self) -> int:
        """What new requests may hold, never below 0."""
        return max(self.free_nanos, 0)

    @property
    def free_nanos(self) -> int:
        """What is neither spent nor held: below 0 once a limit is lowered, or of a debt."""
        return self.limit_nanos - self.spent_nanos - self.held_nanos

    @property
    def percent(self) -> int:
        """The share that is spent, in whole percents."""
        return spent_percent(self.spent_nanos, self.limit_nanos)


class Funds(NamedTuple):
    """What a request may spend: the credit left, what of it gateways hold for requests in progress,
    what new requests may still hold, and the limit that binds. `credit_limit_nanos` is what may be
    owed before tax, 0 for a prepaid organization."""

    balance_nanos: int
    held_nanos: int
    available_nanos: int
    binding_limit: LimitStatus
    credit_limit_nanos: int
    is_credit_limit_suspended: bool


@dataclass(frozen=True, slots=True)
class CreditSource:
    """One grant that usage may draw from: what is left of it, and what its expiry took."""

    grant_id: str
    organization_id: str
    kind: str
    expires_at: datetime | None
    remaining_nanos: int
    expired_nanos: int


def key_at(budget_id: str, at: datetime) -> BudgetKey:
    """Return a budget in the period that a moment lies in."""
    return BudgetKey(budget_id, period_start(budget_id, at))


def budget_rows(keys: Iterable[BudgetKey]) -> dict[BudgetKey, int]:
    """Return the row ids of those budgets that have a row in their period."""
    wanted = list(keys)
    with connection.cursor() as cursor:
        cursor.execute(
            BUDGET_ROWS, [[key.budget_id for key in wanted], [key.starts_at for key in wanted]]
        )
        return {BudgetKey(name, starts_at): row for name, starts_at, row in cursor.fetchall()}


def fine_rows(
    organizations: Iterable[str], received_from: datetime, received_to: datetime
) -> dict[BudgetKey, int]:
    """Return the row ids of budgets by the week and the day that usage between two moments may
    fall in, of those organizations that have any."""
    with connection.cursor() as cursor:
        cursor.execute(FINE_ROWS, [array(organizations), received_to, received_from])
        return {BudgetKey(name, starts_at): row for name, starts_at, row in cursor.fetchall()}


def organizations_limited(ids: Iterable[str]) -> list[str]:
    """Return the organizations that these are, or whose projects and keys."""
    with connection.cursor() as cursor:
        cursor.execute(ORGANIZATIONS_LIMITED, {"ids": list(ids)})
        return sorted(row[0] for row in cursor.fetchall())


def budget(budget_id: str, at: datetime) -> Budget | None:
    """Return a budget in the period that a moment lies in."""
    key = key_at(budget_id, at)
    return Budget.objects.filter(budget_id=key.budget_id, starts_at=key.starts_at).first()


def budgets(organization: Organization, at: datetime) -> QuerySet[Budget]:
    """Return an organization's budgets of the periods that a moment lies in, balance first."""
    mine = Budget.objects.filter(organization_id=organization.pk, starts_at__lte=at)
    running = mine.filter(Q(ends_at__isnull=True) | Q(ends_at__gt=at))
    return running.order_by("kind", "budget_id")


def balance_nanos(organization_id: str) -> int:
    """Return the credit that is left, exact at once; below zero it is a debt."""
    row = Budget.objects.filter(budget_id=balance_budget_id(organization_id)).first()
    return row.balance_nanos if row else 0


def balances_nanos(organization_ids: Collection[str]) -> dict[str, int]:
    """Return the credit that is left of each organization that has a balance, exact at once."""
    names = [balance_budget_id(each) for each in organization_ids]
    rows = Budget.objects.filter(budget_id__in=names)
    return {row.organization_id: row.balance_nanos for row in rows}


def held_nanos(organization_id: str) -> int:
    """Return what gateways hold of an organization's balance for requests at work."""
    row = Budget.objects.filter(budget_id=balance_budget_id(organization_id)).first()
    return row.pending_nanos if row else 0


def available_nanos(organization: Organization, at: datetime) -> int:
    """Return what new requests may still hold, never below 0."""
    return funds(organization, at).available_nanos


def funds(
    organization: Organization,
    at: datetime,
    *,
    project: Project | None = None,
    key: ApiKey | None = None,
) -> Funds:
    """Return what requests of an organization, one of its projects or keys may spend, exact at once
    and in one query.

    The limit that binds has the least available, of the balance and the hard limits by the month,
    the week and the day of the key, its project and the organization.
    """
    project = project or (key.project if key else None)
    owners = [owner for owner in (organization, project, key) if owner is not None]
    names = {owner.pk: owner.name for owner in owners}
    balance_id = balance_budget_id(organization.pk)
    figures = {balance_id: _Figures(organization.debt_limit_nanos)}
    figures |= {limit_budget_id(one.pk): _Figures(one.spend_limit_nanos) for one in owners}
    for budget_id, _, *columns in _opened_and_limits(organization, list(names), at):
        figures[budget_id] = _Figures(*columns)
    limits = [
        LimitStatus(
            budget_id=budget_id,
            name=names[limited_id(budget_id)],
            limit_nanos=one.limit,
            spent_nanos=one.posted,
            held_nanos=one.pending,
            renews_at=period_end(budget_id, period_start(budget_id, at)),
        )
        for budget_id, one in figures.items()
        if one.limit is not None
    ]
    binding = min(limits, key=lambda one: one.free_nanos)
    balance, credit_limit = figures[balance_id], organization.debt_limit_nanos
    return Funds(
        balance_nanos=balance.funded - balance.posted,
        held_nanos=balance.pending,
        available_nanos=binding.available_nanos,
        binding_limit=binding,
        credit_limit_nanos=credit_limit,
        is_credit_limit_suspended=credit_limit > 0 and balance.limit == balance.funded,
    )


def binding_limit(
    organization: Organization,
    at: datetime,
    *,
    project: Project | None = None,
    key: ApiKey | None = None,
) -> LimitStatus:
    """Return the limit of which the least is available, as `funds` does."""
    return funds(organization, at, project=project, key=key).binding_limit


def spent_percent(spent: int, limit: int) -> int:
    """Return the share of a limit that is spent, in whole percents, rounded down; 100 of none."""
    return spent * 100 // limit if limit > 0 else 100


class _Figures(NamedTuple):
    """A budget in nanos; of one that nobody used yet only the limit is known."""

    limit: int | None
    posted: int = 0
    pending: int = 0
    funded: int = 0


def _opened_and_limits(
    organization: Organization, limited: Sequence[str], at: datetime
) -> QuerySet[Any, tuple[Any, ...]]:
    """Return the hard limits by the week and the day, then the balance and the limits that are
    open, in one question: id, whether it is open, and the figures of a `_Figures`."""
    names = [limit_budget_id(one, period) for one in limited for period in LIMIT_PERIODS]
    wanted = [balance_budget_id(organization.pk), *names]
    opened = budgets(organization, at).filter(budget_id__in=wanted).order_by()
    nothing = Value(0, output_field=BigIntegerField())
    unused = short_period_hard_limits(limited).annotate(
        is_open=Value(False), posted_nanos=nothing, pending_nanos=nothing, funded_nanos=nothing
    )
    columns = "budget_id", "is_open", "limit_nanos", "posted_nanos", "pending_nanos", "funded_nanos"
    known = opened.annotate(is_open=Value(True)).values_list(*columns)
    return unused.values_list(*columns).union(known).order_by("is_open")


def owed_nanos(organization_id: str) -> int:
    """Return what the ledger holds as used beyond all credit and not paid yet."""
    return account_balance_nanos(organization_id, AccountKind.ACCOUNTS_RECEIVABLE)


def unfollowed_nanos(row: Budget) -> int:
    """Return what a balance was charged that the ledger does not hold, all that was followed being
    posted: ledger and balance differ by nothing else. The balance is locked."""
    return -account_balance_nanos(row.organization_id, *BALANCE_KINDS) - row.balance_nanos


def refundable_grants(organization_id: str, now: datetime) -> list[CreditGrant]:
    """Return the paid credit that is left, the last to be drawn first."""
    paid = CreditGrant.objects.select_related("account").filter(
        organization_id=organization_id,
        kind=GrantKind.PREPAID,
        account__balance_nanos__lt=0,
        reversed_at__isnull=True,
    )
    valid = paid.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now))
    return list(valid.order_by(F("expires_at").desc(nulls_first=True), "-granted_at", "-id"))


def is_welcomed(user_id: str) -> bool:
    """Tell whether a person had the welcome credit."""
    return Welcome.objects.filter(user_id=user_id).exists()


def budget_by_row(row: int) -> Budget:
    """Return a budget by its row id, as it is now."""
    return Budget.objects.get(pk=row)


def charged_nanos(budget_id: str, at: datetime) -> int:
    """Return what a budget was charged in the period that a moment lies in."""
    row = budget(budget_id, at)
    return row.posted_nanos if row else 0


def grants(organization: Organization) -> QuerySet[CreditGrant]:
    """Return the organization's grants, newest first, with their accounts."""
    mine = CreditGrant.objects.filter(organization_id=organization.pk)
    return mine.select_related("account").order_by("-granted_at", "-id")


def expired_grants(organization: Organization) -> QuerySet[CreditGrant]:
    """Return the grants that expired with something left, the latest first."""
    expired = CreditGrant.objects.filter(organization_id=organization.pk, expired_nanos__gt=0)
    return expired.order_by("-expires_at")


def grant_by_key(organization_id: str, idempotency_key: str) -> CreditGrant | None:
    """Return the grant made with this idempotency key."""
    made = CreditGrant.objects.filter(
        organization_id=organization_id, idempotency_key=idempotency_key
    )
    return made.first()


def payments(organization: Organization) -> QuerySet[Payment]:
    """Return the organization's payments, newest first."""
    mine = Payment.objects.filter(organization_id=organization.pk)
    return mine.order_by("-received_at", "id")


def payment_by_key(organization_id: str, idempotency_key: str) -> Payment | None:
    """Return the payment recorded with this idempotency key."""
    made = Payment.objects.filter(organization_id=organization_id, idempotency_key=idempotency_key)
    return made.first()


def grants_to_expire(now: datetime) -> list[CreditGrant]:
    """Return the grants past their time that are not closed yet, of all organizations."""
    return list(CreditGrant.objects.filter(closed_at__isnull=True, expires_at__lte=now))


def grant_with_account(grant_id: str) -> CreditGrant:
    """Return a grant with its account as it is now. Raises ObjectNotFound."""
    found = CreditGrant.objects.select_related("account").filter(id=grant_id).first()
    if found is None:
        raise ObjectNotFound("There is no such grant.")
    return found


def held_since_before(budget_row: int, moment: datetime) -> int:
    """Return what leases of a budget that were granted before a moment still hold."""
    held = Func(
        "keep_nanos", "settled_nanos", "closed_at", function="credit_held",
        output_field=Budget._meta.get_field("pending_nanos"),
    )  # fmt: skip
    open_leases = Lease.objects.filter(
        budget_id=budget_row, closed_at__isnull=True, granted_at__lt=moment
    )
    return int(open_leases.aggregate(nanos=Coalesce(Sum(held), 0))["nanos"])


def credit_sources(
    organization_ids: Sequence[str], *, valid_at: datetime
) -> dict[str, list[CreditSource]]:
    """Return what usage is drawn from, per organization: soonest to expire first, promotional
    before paid. Grants that expired after `valid_at` are there too, since late usage may take back
    what expiry took."""
    sources: dict[str, list[CreditSource]] = {}
    for grant in drawable_grants(organization_ids, valid_at=valid_at):
        source = CreditSource(
            grant.id, grant.organization_id, grant.kind, grant.expires_at, grant.remaining_nanos,
            grant.expired_nanos,
        )  # fmt: skip
        sources.setdefault(grant.organization_id, []).append(source)
    return sources


def drawable_grants(
    organization_ids: Sequence[str], *, valid_at: datetime
) -> QuerySet[CreditGrant]:
    """Return the grants that usage valid at a moment may draw, with their accounts, in the order in
    which it does. None is read that was used up, or expired before."""
    is_valid = Q(expires_at__isnull=True) | Q(expires_at__gte=valid_at)
    has_expired = Q(expired_nanos__gt=0, expires_at__gte=valid_at)
    return (
        CreditGrant.objects.filter(
            Q(is_valid, has_remaining=True) | has_expired,
            organization_id__in=organization_ids,
            reversed_at__isnull=True,
        )
        .select_related("account")
        .order_by(F("expires_at").asc(nulls_last=True), "-kind", "granted_at", "id")
    )


def lease(lease_id: int) -> Lease:
    """Return a lease by its row id. Raises ObjectNotFound."""
    found = Lease.objects.filter(pk=lease_id).first()
    if found is None:
        raise ObjectNotFound("There is no such lease.")
    return found


def recalled_lease_ids(gateway_id: str, lineage: str) -> tuple[str, ...]:
    """Return the leases that a gateway is asked to give back from, as it calls them."""
    recalled = Lease.objects.filter(
        gateway_id=gateway_id,
        lineage=lineage,
        closed_at__isnull=True,
        stopped_at__isnull=True,
        recalled_at__isnull=False,
    )
    rows = recalled.order_by("pk").values_list("pk", flat=True)
    return tuple(f"{lineage}.{row}" for row in rows)


def held_elsewhere(budget_rows: Collection[int], gateway_id: str, now: datetime) -> dict[int, int]:
    """Return what requests under way hold of each budget in other gateways, by its row: of leases
    that admit nothing more, all else has gone back."""
    stopped = Lease.objects.filter(
        budget_id__in=budget_rows, closed_at__isnull=True, stopped_at__gt=now - SILENT_AFTER
    )
    others = stopped.exclude(gateway_id=gateway_id).values_list("budget_id")
    return dict(others.annotate(held=Sum(HELD)))


def abandoned_leases(lineage: str, now: datetime) -> list[Lease]:
    """Return the open leases whose gateway was not heard of for a day after they ended, and those
    that another database granted."""
    gone = Q(admits_until__lte=now - VOID_AFTER) | ~Q(lineage=lineage)
    return list(Lease.objects.filter(gone, closed_at__isnull=True).order_by("pk"))


def unposted_nanos(organization_id: str) -> int:
    """Return what was charged to an organization and followed, and is not in the ledger yet."""
    rows = UnpostedUsage.objects.filter(organization_id=organization_id)
    return int(rows.aggregate(nanos=Coalesce(Sum("nanos"), 0))["nanos"])


def silent_leases(now: datetime) -> QuerySet[Lease]:
    """Return the leases that are open long after their end."""
    return Lease.objects.filter(closed_at__isnull=True, admits_until__lt=now - SILENT_AFTER)


def living_gateways(gateway_ids: Collection[str], now: datetime) -> set[str]:
    """Return those of some gateways that hold a lease which did not end long ago."""
    young = Lease.objects.filter(closed_at__isnull=True, admits_until__gte=now - SILENT_AFTER)
    return set(young.filter(gateway_id__in=gateway_ids).values_list("gateway_id", flat=True))


def lease_terms(rows: Iterable[int]) -> dict[int, LeaseTerms]:
    """Return whose leases these are, for those that exist."""
    with connection.cursor() as cursor:
        cursor.execute(LEASE_TERMS, [array(rows)])
        return {row[0]: LeaseTerms(*row) for row in cursor.fetchall()}
