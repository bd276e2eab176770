"""Questions about credit. Those that decide on money are asked under the budget's lock."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db.models import F, Q, QuerySet, Sum
from django.db.models.functions import Greatest

from billing.credit.models import Budget, CreditGrant, Lease, Spend
from billing.ledger.models import AccountKind
from billing.ledger.selectors import balance_nanos as account_balance_nanos
from control.keys.models import ApiKey
from control.tenants.models import Organization, Project

VOID_AFTER = timedelta(hours=24)
"""How long after its expiry a lease waits for the journal of a vanished gateway."""
HELD = Greatest(F("keep_nanos") - F("settled_nanos"), 0)


@dataclass(frozen=True, slots=True)
class CreditSource:
    """What is left of one grant, and the account it sits in."""

    account_id: int
    remaining_nanos: int


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """What identifies a lease as an event's own. None of it ever changes but `is_open`."""

    organization_id: str
    budget_id: str
    gateway_id: str
    is_open: bool


def month_of(moment: datetime) -> date:
    """Return the first day of the UTC month of `moment`: the period it is charged in."""
    return moment.astimezone(UTC).date().replace(day=1)


def balance(organization: Organization, now: datetime) -> int:
    """Return the nanos of credit that may be spent at `now`, less what is owed."""
    return balance_nanos(organization.pk, now)


def balance_nanos(organization_id: str, now: datetime) -> int:
    """Return `balance` of the organization with this id."""
    return spendable_nanos(organization_id, now) - owed_nanos(organization_id)


def spendable_nanos(organization_id: str, now: datetime) -> int:
    """Return what is left of the grants that have not expired at `now`."""
    grants = CreditGrant.objects.filter(
        Q(expires_at__isnull=True) | Q(expires_at__gt=now), organization_id=organization_id
    )
    return -(grants.aggregate(nanos=Sum("account__balance_nanos"))["nanos"] or 0)


def owed_nanos(organization_id: str) -> int:
    """Return what was used beyond all credit and is not paid yet."""
    return account_balance_nanos(organization_id, AccountKind.ACCOUNTS_RECEIVABLE)


def grants(organization: Organization) -> QuerySet[CreditGrant]:
    """Return the organization's grants, newest first, with their accounts."""
    mine = CreditGrant.objects.filter(organization_id=organization.pk)
    return mine.select_related("account").order_by("-granted_at")


def grant_by_key(organization_id: str, idempotency_key: str) -> CreditGrant | None:
    """Return the grant made with this idempotency key."""
    made = CreditGrant.objects.filter(
        organization_id=organization_id, idempotency_key=idempotency_key
    )
    return made.first()


def expired_grants(now: datetime) -> list[CreditGrant]:
    """Return the grants past their time that are not closed yet, of all organizations."""
    return list(CreditGrant.objects.filter(expired_at__isnull=True, expires_at__lte=now))


def grant_for_expiry(grant_id: str, now: datetime) -> CreditGrant | None:
    """Return the grant with its account if it is still to be closed."""
    due = CreditGrant.objects.filter(id=grant_id, expired_at__isnull=True, expires_at__lte=now)
    return due.select_related("account").first()


def is_needed_by_leases(grant: CreditGrant, now: datetime) -> bool:
    """Tell whether money set aside in leases would be uncovered without what is left of it."""
    if grant.remaining_nanos == 0:
        return False
    held = held_nanos(grant.organization_id)
    return held > 0 and held > balance_nanos(grant.organization_id, now)


def credit_sources(organization_ids: Sequence[str]) -> dict[str, list[CreditSource]]:
    """Return what usage is drawn from, per organization, soonest to expire first."""
    rows = (
        CreditGrant.objects.filter(
            organization_id__in=organization_ids,
            expired_at__isnull=True,
            account__balance_nanos__lt=0,
        )
        .order_by(F("expires_at").asc(nulls_last=True), "granted_at", "id")
        .values_list("organization_id", "account_id", "account__balance_nanos")
    )
    sources: dict[str, list[CreditSource]] = {}
    for organization_id, account_id, balance in rows:
        sources.setdefault(organization_id, []).append(CreditSource(account_id, -balance))
    return sources


def present_budget_ids(budget_ids: Iterable[str]) -> set[str]:
    """Return those ids that have a budget row."""
    return set(Budget.objects.filter(id__in=budget_ids).values_list("id", flat=True))


def budget_of_id(budget_id: str) -> Budget | None:
    """Return the budget row of an id."""
    return Budget.objects.filter(id=budget_id).first()


def limited_organization(budget_id: str) -> Organization | None:
    """Return the organization that a budget limits."""
    return Organization.objects.filter(id=budget_id).first()


def limited_project(budget_id: str) -> Project | None:
    """Return the project that a budget limits."""
    return Project.objects.filter(id=budget_id).first()


def limited_key(budget_id: str) -> ApiKey | None:
    """Return the API key that a budget limits."""
    return ApiKey.objects.filter(id=budget_id).first()


def charged_nanos(budget_id: str, period: date) -> int:
    """Return what a budget was charged in the UTC month that begins at `period`."""
    row = Spend.objects.filter(budget_id=budget_id, period=period).first()
    return row.charged_nanos if row else 0


def held_nanos(budget_id: str) -> int:
    """Return what open leases of a budget hold: neither spent nor given back."""
    open_leases = Lease.objects.filter(budget_id=budget_id, closed_at__isnull=True)
    return open_leases.aggregate(nanos=Sum(HELD))["nanos"] or 0


def lease_of_ask(ask_id: str) -> Lease | None:
    """Return the lease that an ask was answered with."""
    return Lease.objects.filter(ask_id=ask_id).first()


def lease_of_gateway(lease_id: str, gateway_id: str) -> Lease | None:
    """Return a gateway's own lease."""
    return Lease.objects.filter(id=lease_id, gateway_id=gateway_id).first()


def idle_leases(budget_id: str, gateway_id: str, now: datetime) -> QuerySet[Lease]:
    """Return the leases of other, living gateways that hold money of a budget."""
    others = Lease.objects.filter(
        budget_id=budget_id,
        closed_at__isnull=True,
        expires_at__gt=now,
        keep_nanos__gt=F("settled_nanos"),
    )
    return others.exclude(gateway_id=gateway_id)


def recalled_lease_ids(gateway_id: str) -> tuple[str, ...]:
    """Return the leases that a gateway is asked to give back from."""
    recalled = Lease.objects.filter(
        gateway_id=gateway_id, closed_at__isnull=True, recalled_at__isnull=False
    )
    return tuple(recalled.order_by("id").values_list("id", flat=True))


def abandoned_leases(now: datetime) -> list[Lease]:
    """Return the open leases whose gateway was not heard of for a day after they expired."""
    return list(Lease.objects.filter(closed_at__isnull=True, expires_at__lte=now - VOID_AFTER))


def abandoned_lease(lease_id: str, now: datetime) -> Lease | None:
    """Return the lease if it is still to be voided."""
    due = Lease.objects.filter(
        id=lease_id, closed_at__isnull=True, expires_at__lte=now - VOID_AFTER
    )
    return due.first()


def lease_terms(lease_ids: Iterable[str]) -> dict[str, LeaseTerms]:
    """Return whose leases these are, for those that exist."""
    rows = Lease.objects.filter(id__in=set(lease_ids)).values_list(
        "id", "organization_id", "budget_id", "gateway_id", "closed_at"
    )
    return {
        lease_id: LeaseTerms(organization_id, budget_id, gateway_id, closed_at is None)
        for lease_id, organization_id, budget_id, gateway_id, closed_at in rows
    }
