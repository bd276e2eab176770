"""What control says of limits and of who pays when is what budgets go by, at once."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from billing.credit.models import Budget
from billing.credit.selectors import (
    available_nanos,
    budget,
    budgets,
    charged_nanos,
    funds,
    key_at,
)
from billing.credit.services.budgets import (
    forget_known,
    open_budgets,
    restore_credit_limit,
    set_limits,
    suspend_credit_limit,
)
from billing.credit.services.payments import record_payment
from control.api_keys.models import ApiKey
from control.organizations.models import BillingMode, Organization
from control.organizations.projects import set_project_limit
from control.organizations.services import set_organization_terms
from control.permissions import Actor
from serving.contract.budget import limit_budget_id
from serving.contract.lease import LeaseDenial, LeaseGrant
from tests.fixtures.spending import charge_to
from tests.fixtures.usage import NOW, ask_for, give_credit

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
OPERATOR = Actor.for_system("tests")


def set_terms(
    organization: Organization,
    billing_mode: str,
    limit: int | None = None,
    credit_limit: int | None = None,
) -> None:
    set_organization_terms(
        actor=OPERATOR,
        organization=organization,
        billing_mode=billing_mode,
        spend_limit_nanos=limit,
        weight=1,
        credit_limit_nanos=credit_limit,
    )
    organization.refresh_from_db()


def test_who_begins_to_pay_afterwards_may_owe_their_credit_limit_and_keeps_their_credit(customer):
    """500 funded, 700 used: prepaid there are 200 of debt; of a credit limit of 1,000, 800 are
    left."""
    give_credit(customer, 500)
    charge_to(customer, 700)
    assert isinstance(ask_for(customer.balance, 1), LeaseDenial)
    set_terms(customer.organization, BillingMode.POSTPAID, credit_limit=1_000)
    row = budget(customer.balance, NOW)
    assert (row.limit_nanos, row.funded_nanos, row.balance_nanos) == (1_500, 500, -200)
    assert available_nanos(customer.organization, NOW) == 800
    assert isinstance(ask_for(customer.balance, 800), LeaseGrant)
    refused = ask_for(customer.balance, 1)
    assert (refused.code, refused.available_nanos) == ("credit_balance_exhausted", 0)


def test_an_organization_may_owe_1000_dollars_until_an_operator_says_otherwise(customer):
    set_terms(customer.organization, BillingMode.POSTPAID)
    assert budget(customer.balance, NOW).limit_nanos == 1_000 * 10**9
    assert funds(customer.organization, NOW).credit_limit_nanos == 1_000 * 10**9
    set_terms(customer.organization, BillingMode.POSTPAID, credit_limit=0)
    assert isinstance(ask_for(customer.balance, 1), LeaseDenial)


def test_a_lowered_credit_limit_recalls_what_is_leased_beyond_it(customer):
    set_terms(customer.organization, BillingMode.POSTPAID, credit_limit=1_000)
    ask_for(customer.balance, 800)
    set_terms(customer.organization, BillingMode.POSTPAID, credit_limit=799)
    assert budget(customer.balance, NOW).leases.get().recalled_at is not None


def test_a_balance_opens_with_the_credit_limit_of_its_organization(customer, outsider):
    Organization.objects.filter(id=customer.id).update(
        billing_mode=BillingMode.POSTPAID, credit_limit_nanos=70
    )
    assert isinstance(ask_for(customer.balance, 70), LeaseGrant)
    assert budget(customer.balance, NOW).credit_limit_nanos == 70
    assert isinstance(ask_for(outsider.balance, 1), LeaseDenial)


def test_a_suspended_credit_limit_stays_so_under_new_terms_until_it_is_restored(customer):
    set_terms(customer.organization, BillingMode.POSTPAID, credit_limit=1_000)
    give_credit(customer, 100)
    ask_for(customer.balance, 500)
    suspend_credit_limit(customer.id, now=NOW)
    assert budget(customer.balance, NOW).limit_nanos == 100
    assert budget(customer.balance, NOW).leases.get().recalled_at is not None
    set_terms(customer.organization, BillingMode.POSTPAID, credit_limit=2_000)
    give_credit(customer, 1)
    assert budget(customer.balance, NOW).limit_nanos == 101
    assert funds(customer.organization, NOW).is_credit_limit_suspended
    restore_credit_limit(customer.id, now=NOW)
    assert budget(customer.balance, NOW).limit_nanos == 2_101
    assert not funds(customer.organization, NOW).is_credit_limit_suspended


def test_a_payment_makes_room_by_its_amount_without_tax(customer):
    """Of a credit limit of 1,000 all is owed: 119 with 19 of tax make room for 100."""
    set_terms(customer.organization, BillingMode.POSTPAID, credit_limit=1_000)
    charge_to(customer, 1_000)
    record_payment(
        organization_id=customer.id, amount_nanos=119, tax_nanos=19, idempotency_key="p",
        actor=OPERATOR, reason="Wire", now=NOW,
    )  # fmt: skip
    assert available_nanos(customer.organization, NOW) == 100


def test_who_begins_to_pay_in_advance_is_limited_to_what_funds_them(customer):
    set_terms(customer.organization, BillingMode.POSTPAID)
    give_credit(customer, 500)
    lease = ask_for(customer.balance, 800)
    set_terms(customer.organization, BillingMode.PREPAID)
    row = budget(customer.balance, NOW)
    assert (row.limit_nanos, row.available_nanos) == (500, -300)
    assert row.leases.get().recalled_at is not None
    assert isinstance(lease, LeaseGrant)
    refused = ask_for(customer.balance, 1)
    assert (refused.code, refused.available_nanos) == ("credit_balance_exhausted", 0)


def test_credit_given_to_who_pays_afterwards_is_added_to_their_credit_limit(customer):
    set_terms(customer.organization, BillingMode.POSTPAID, credit_limit=1_000)
    give_credit(customer, 500)
    assert budget(customer.balance, NOW).limit_nanos == 1_500


def test_a_limit_set_in_mid_period_knows_what_was_spent(customer):
    now = timezone.now()
    row = open_budgets([key_at(limit_budget_id(customer.project.id), now)]).popitem()[1]
    ask_for(limit_budget_id(customer.project.id), 30, now=now)
    set_project_limit(actor=OPERATOR, project=customer.project, spend_limit_nanos=40)
    assert Budget.objects.get(pk=row).available_nanos == 10
    set_project_limit(actor=OPERATOR, project=customer.project, spend_limit_nanos=None)
    assert Budget.objects.get(pk=row).limit_nanos is None


def test_a_limit_set_before_midnight_holds_for_the_next_month_that_was_opened_ahead(customer):
    """At 23:45 a gateway has opened December; a limit set then holds there too, and not in
    a November that is over."""
    late = datetime(2026, 11, 30, 23, 45, tzinfo=UTC)
    december = late + timedelta(minutes=15)
    name = limit_budget_id(customer.id)
    ask_for(name, 10, now=late)
    ask_for(name, 10, now=december)
    set_limits({name: 5}, now=late)
    assert [budget(name, at).limit_nanos for at in (late, december)] == [5, 5]
    set_limits({name: 7}, now=december)
    assert [budget(name, at).limit_nanos for at in (late, december)] == [5, 7]


def test_a_limit_holds_in_a_month_that_can_be_opened_before_it_is_committed(customer):
    """At 23:39:30 nobody can ask for December yet; half a minute later somebody can, who does not
    see the new limit before it is committed, but waits for its row."""
    name = limit_budget_id(customer.id)
    set_limits({name: 5}, now=datetime(2026, 11, 30, 23, 39, 30, tzinfo=UTC))
    assert budget(name, datetime(2026, 12, 1, tzinfo=UTC)).limit_nanos == 5


def test_a_new_row_has_the_limit_that_control_says(customer):
    ApiKey.objects.filter(id=customer.key.id).update(spend_limit_nanos=9)
    ask_for(limit_budget_id(customer.key.id), 1)
    assert budget(limit_budget_id(customer.key.id), NOW).limit_nanos == 9


def test_an_organizations_budgets_are_its_own(customer, outsider):
    for one in (customer, outsider):
        give_credit(one, 500)
        ask_for(limit_budget_id(one.key.id), 1)
    mine = budgets(customer.organization, NOW)
    assert [row.kind for row in mine] == ["balance", "key"]
    assert {row.organization_id for row in mine} == {customer.id}


def test_what_was_charged_is_zero_where_nothing_was(customer):
    assert charged_nanos(customer.balance, NOW) == 0
    charge_to(customer, 70)
    assert charged_nanos(customer.balance, NOW) == 70


def test_known_rows_are_forgotten_with_their_database(customer):
    give_credit(customer, 1)
    forget_known()
    assert budget(customer.balance, NOW) is not None
