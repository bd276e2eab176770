"""The limit that binds: the one of which the least is left, of whatever it limits."""

from itertools import product

import pytest

from billing.credit.selectors import binding_limit, funds, key_at
from billing.credit.services.budgets import open_budgets
from billing.credit.services.leases import charge
from control.limits.spending import add_limit
from control.organizations.models import BillingMode
from control.organizations.services import set_organization_terms
from control.permissions import Actor
from serving.contract.budget import LIMIT_PERIODS, limit_budget_id, period_end, period_start
from tests.fixtures.spending import charge_to
from tests.fixtures.usage import NOW, ask_for, give_credit

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
OPERATOR = Actor.for_system("tests")
ALL = list(product(("organization", "project", "key"), LIMIT_PERIODS))


def owner_of(customer, kind):
    return {
        "organization": customer.organization,
        "project": customer.project,
        "key": customer.key,
    }[kind]


def limit(customer, kind, period, nanos, *, is_hard=True):
    owner = owner_of(customer, kind)
    add_limit(
        actor=OPERATOR, organization=customer.organization, owner_id=owner.id, period=period,
        limit_nanos=nanos, is_hard=is_hard, now=NOW,
    )  # fmt: skip
    owner.refresh_from_db()
    customer.organization.refresh_from_db()
    customer.key.project = customer.project


def binding_ids(customer):
    """Return what binds the organization, the project and the key."""
    found = [
        binding_limit(customer.organization, NOW),
        binding_limit(customer.organization, NOW, project=customer.project),
        binding_limit(customer.organization, NOW, key=customer.key),
    ]
    return [one.budget_id if one else None for one in found]


@pytest.mark.parametrize("tightest", ALL)
@pytest.mark.parametrize("is_used", [False, True])
def test_the_tightest_limit_binds_whom_it_concerns(customer, tightest, is_used):
    """All limits are 1,000, but of one 300 are left: it is lower, or 700 of it are spent."""
    kind, period = tightest
    give_credit(customer, 2_000)
    for each in ALL:
        limit(customer, *each, 300 if each == tightest and not is_used else 1_000)
    name = limit_budget_id(owner_of(customer, kind).id, period)
    if is_used:
        charge({open_budgets([key_at(name, NOW)]).popitem()[1]: 700}, {})
    bound = binding_ids(customer)
    first = ("organization", "project", "key").index(kind)
    assert bound[first:] == [name] * (3 - first)
    assert name not in bound[:first]
    found = binding_limit(customer.organization, NOW, key=customer.key)
    assert (found.available_nanos, found.percent) == (300, 70 if is_used else 0)
    assert found.name == owner_of(customer, kind).name
    assert found.renews_at == period_end(name, period_start(name, NOW))


def test_the_balance_binds_where_it_is_the_least(customer):
    give_credit(customer, 500)
    for each in ALL:
        limit(customer, *each, 1_000)
    charge_to(customer, 200)
    assert binding_ids(customer) == [customer.balance] * 3
    found = binding_limit(customer.organization, NOW)
    assert (found.available_nanos, found.renews_at) == (300, None)
    charge_to(customer, 400)
    assert binding_limit(customer.organization, NOW).available_nanos == 0


def test_soft_limits_and_those_of_others_bind_nobody(customer, outsider):
    give_credit(customer, 500)
    for each in ALL:
        limit(customer, *each, 1, is_hard=False)
        limit(outsider, *each, 1)
    assert binding_ids(customer) == [customer.balance] * 3


def test_the_credit_limit_binds_who_pays_later(customer):
    set_organization_terms(
        actor=OPERATOR, organization=customer.organization, billing_mode=BillingMode.POSTPAID,
        spend_limit_nanos=None, weight=1,
    )  # fmt: skip
    customer.organization.refresh_from_db()
    assert binding_ids(customer) == [customer.balance] * 3
    limit(customer, "key", "day", 100)
    daily = limit_budget_id(customer.key.id, "day")
    assert binding_ids(customer) == [customer.balance, customer.balance, daily]


def test_what_is_held_cannot_be_spent(customer, django_assert_num_queries):
    give_credit(customer, 500)
    limit(customer, "key", "month", 400)
    ask_for(limit_budget_id(customer.key.id), 150)
    with django_assert_num_queries(1):
        found = funds(customer.organization, NOW, key=customer.key)
    assert (found.balance_nanos, found.held_nanos, found.available_nanos) == (500, 0, 250)
    assert (found.binding_limit.available_nanos, found.binding_limit.held_nanos) == (250, 150)
    limit(customer, "project", "month", 300)
    limited = funds(customer.organization, NOW, key=customer.key)
    assert limited.binding_limit.budget_id == limit_budget_id(customer.key.id)
