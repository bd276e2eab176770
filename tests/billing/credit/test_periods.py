"""Budgets by the week and the day: opened when needed, they know all that was spent."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from billing.credit.models import Budget
from billing.credit.selectors import available_nanos, budget
from billing.credit.services.leases import take_back
from billing.following.follow import follow
from billing.metering.ingest import ingest
from control.feed.database_identity import database_id
from control.limits.models import SpendingLimit
from control.limits.spending import add_limit, change_limit, remove_limit, spending_limits
from control.permissions import Actor
from serving.contract.budget import limit_budget_id
from serving.contract.lease import LeaseDenial, LeaseGrant, LeaseReturn
from tests.fixtures.usage import (
    ask_for,
    broken_promises,
    charge_of,
    give_credit,
    make_batch,
    make_event,
    with_lease,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
OPERATOR = Actor.for_system("tests")
COST = 132_000


@pytest.fixture
def now() -> datetime:
    """A moment of today: limits are set by the clock."""
    return timezone.now()


def limit_by(customer, period="day", nanos=10**9, *, owner=None, is_hard=True, now):
    return add_limit(
        actor=OPERATOR,
        organization=customer.organization,
        owner_id=owner or customer.id,
        period=period,
        limit_nanos=nanos,
        is_hard=is_hard,
        now=now,
    )


def use(customer, price, count=1, *, at):
    events = [make_event(customer, price, received_at=at) for _ in range(count)]
    ingest(make_batch(events), now=max(at, timezone.now()))


def posted(name, at):
    found = budget(name, at)
    return found.posted_nanos if found else None


@pytest.mark.parametrize("period", ["day", "week"])
@pytest.mark.parametrize("owner", ["organization", "project", "key"])
def test_a_limit_set_in_mid_period_knows_what_was_spent(customer, price, now, period, owner):
    """Three requests were followed, two were not; another customer's count for nothing."""
    give_credit(customer, 10**9)
    use(customer, price, 3, at=now)
    follow("rollups", now=now)
    use(customer, price, 2, at=now)
    name = limit_budget_id(getattr(customer, owner).id, period)
    limit_by(customer, period, owner=getattr(customer, owner).id, now=now)
    assert posted(name, now) == 5 * COST
    use(customer, price, 1, at=now)
    assert posted(name, now) == 6 * COST
    follow("rollups", now=now)
    assert broken_promises() == []


@pytest.mark.parametrize("period", ["day", "week"])
def test_what_can_be_spent_is_what_a_gateway_gets(customer, price, now, period):
    """A soft limit holds nothing back, and the next period begins with all of it."""
    give_credit(customer, 10**9)
    use(customer, price, 2, at=now)
    limit_by(customer, period, 5 * COST, now=now)
    limit_by(customer, "week" if period == "day" else "day", COST, is_hard=False, now=now)
    name = limit_budget_id(customer.id, period)
    left = available_nanos(customer.organization, now)
    assert left == 3 * COST
    assert isinstance(ask_for(name, left + 1, now=now), LeaseDenial)
    assert ask_for(name, left, now=now).granted_nanos == left
    assert available_nanos(customer.organization, now) == 0
    assert available_nanos(customer.organization, now + timedelta(days=8)) == 5 * COST


def test_usage_counts_in_the_day_it_was_received_on(customer, price, now):
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    limit_by(customer, now=midnight - timedelta(hours=1))
    limit_by(customer, "week", now=now)
    name = limit_budget_id(customer.id, "day")
    use(customer, price, 2, at=midnight - timedelta(milliseconds=1))
    use(customer, price, 3, at=midnight)
    assert posted(name, midnight - timedelta(seconds=1)) == 2 * COST
    assert ask_for(name, 1, now=now).granted_nanos == 1
    assert posted(name, now) == 3 * COST


def test_who_sets_none_has_no_such_rows(customer, outsider, price, now):
    limit_by(outsider, now=now)
    use(customer, price, at=now)
    mine = Budget.objects.filter(organization_id=customer.id)
    assert set(mine.values_list("period", flat=True)) == {"lifetime", "month"}
    assert posted(limit_budget_id(outsider.id, "day"), now) == 0


def test_a_lease_of_a_day_is_settled_and_ends_with_it(customer, price, now):
    give_credit(customer, 10**9)
    limit_by(customer, nanos=COST + 10, now=now)
    name = limit_budget_id(customer.id, "day")
    lease = ask_for(name, COST, now=now)
    assert isinstance(lease, LeaseGrant)
    assert lease.admits_until <= lease.period_ends_at
    assert lease.period_ends_at - lease.period == timedelta(days=1)
    event = make_event(customer, price, received_at=now)
    of_balance = ask_for(customer.balance, COST, now=now)
    event = with_lease(with_lease(event, lease.lease_id, name), of_balance.lease_id)
    assert charge_of(event) == COST
    ingest(make_batch([event]), now=now)
    row = budget(name, now)
    assert (row.posted_nanos, row.pending_nanos) == (COST, 0)
    assert row.leases.get().settled_nanos == COST
    refused = ask_for(name, 11, now=now)
    assert isinstance(refused, LeaseDenial)
    assert (refused.available_nanos, refused.limit_nanos) == (10, COST + 10)
    take_back(
        gateway_id="gw_1",
        returns=[LeaseReturn(lease.lease_id, COST, True)],
        lineage=database_id(),
        now=now,
    )
    assert broken_promises() == []


def test_a_lease_of_another_customers_day_is_not_settled(customer, outsider, price, now):
    give_credit(customer, 10**9)
    limit_by(outsider, now=now)
    name = limit_budget_id(outsider.id, "day")
    lease = ask_for(name, COST, now=now)
    event = make_event(customer, price, received_at=now)
    ingest(make_batch([with_lease(event, lease.lease_id, name)]), now=now)
    assert (posted(name, now), budget(name, now).pending_nanos) == (0, COST)


def test_a_soft_limit_refuses_nothing_and_knows_what_was_spent(customer, price, now):
    limit_by(customer, nanos=1, is_hard=False, now=now)
    use(customer, price, at=now)
    row = budget(limit_budget_id(customer.id, "day"), now)
    assert (row.limit_nanos, row.posted_nanos) == (None, COST)
    change_limit(
        actor=OPERATOR, organization=customer.organization, budget_id=row.budget_id,
        is_hard=True, now=now,
    )  # fmt: skip
    assert isinstance(ask_for(row.budget_id, 1, now=now), LeaseDenial)


def test_a_lowered_limit_calls_back_what_is_held_and_a_lifted_one_refuses_nothing(customer, now):
    limit_by(customer, nanos=100, now=now)
    name = limit_budget_id(customer.id, "day")
    ask_for(name, 80, now=now)
    terms = {"actor": OPERATOR, "organization": customer.organization, "budget_id": name}
    change_limit(**terms, limit_nanos=50, now=now)
    assert budget(name, now).leases.get().recalled_at is not None
    remove_limit(**terms, now=now)
    assert isinstance(ask_for(name, 10**12, now=now), LeaseGrant)
    assert not SpendingLimit.objects.exists()


def test_a_month_is_its_owners_column_while_hard_and_a_row_while_soft(customer, now):
    terms = {"actor": OPERATOR, "organization": customer.organization, "now": now}
    name = limit_by(customer, "month", 70, owner=customer.key.id, now=now).budget_id
    assert (name, SpendingLimit.objects.count()) == (f"limit:{customer.key.id}", 0)
    change_limit(**terms, budget_id=name, is_hard=False)
    (found,) = spending_limits(customer.organization)
    assert (found.limit_nanos, found.is_hard, budget(name, now).limit_nanos) == (70, False, None)
    change_limit(**terms, budget_id=name, is_hard=True, limit_nanos=80)
    (found,) = spending_limits(customer.organization)
    assert (found.limit_nanos, found.is_hard, budget(name, now).limit_nanos) == (80, True, 80)
    remove_limit(**terms, budget_id=name)
    assert spending_limits(customer.organization) == []
