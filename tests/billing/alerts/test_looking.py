"""What there is to tell: each thing once per period, whoever looks and however often."""

from datetime import UTC, datetime, timedelta

import pytest

from billing.alerts import looking
from billing.alerts.models import Alert, DaySpend
from billing.alerts.opening import open_soft_budgets
from billing.alerts.selectors import runway_days
from billing.alerts.services import choose_alerts, choose_percents
from billing.credit.selectors import budget, key_at
from billing.credit.services.budgets import (
    open_budgets,
    restore_credit_limit,
    set_limits,
    suspend_credit_limit,
)
from billing.credit.services.leases import charge
from control.limits.spending import add_limit
from control.organizations.models import BillingMode
from control.organizations.services import set_organization_terms
from control.permissions import Actor
from serving.contract.budget import limit_budget_id
from tests.fixtures.spending import charge_to, follow, settle
from tests.fixtures.usage import NOW, give_credit

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
OPERATOR = Actor.for_system("tests")
DOLLAR = 10**9


def limit(customer, period="day", nanos=100, *, is_hard=True, at=NOW):
    return add_limit(
        actor=OPERATOR, organization=customer.organization, owner_id=customer.id, period=period,
        limit_nanos=nanos, is_hard=is_hard, now=at,
    ).budget_id  # fmt: skip


def spend(name, nanos, at=NOW):
    row = open_budgets([key_at(name, at)]).popitem()[1]
    charge({row: nanos}, {})


def rules(found):
    return sorted((one.budget_id, one.rule) for one in found)


@pytest.mark.parametrize("is_hard", [True, False])
@pytest.mark.parametrize("period", ["day", "week", "month"])
def test_each_percentage_is_raised_once_a_period(customer, period, is_hard):
    name = limit(customer, period, 100, is_hard=is_hard)
    set_limits({name: 100 if is_hard else None}, now=NOW)
    assert looking.reached(NOW) == []
    spend(name, 49)
    assert looking.reached(NOW) == []
    spend(name, 1)
    assert rules(looking.reached(NOW)) == [(name, "50")]
    assert looking.reached(NOW) == []
    spend(name, 55)
    assert rules(looking.reached(NOW)) == [(name, "100"), (name, "80")]
    assert looking.reached(NOW) == []
    later = NOW + timedelta(days=32)
    spend(name, 60, at=later)
    assert rules(looking.reached(later)) == [(name, "50")]
    assert Alert.objects.count() == 4


def test_what_was_reached_yesterday_is_not_told_today(customer):
    name = limit(customer)
    spend(name, 100)
    assert looking.reached(NOW + timedelta(days=1)) == []


def test_chosen_percentages_go_before_the_usual_ones(customer):
    name = limit(customer)
    choose_percents(
        actor=OPERATOR, organization=customer.organization, budget_id=name, percents=[90, 120]
    )
    spend(name, 130)
    assert rules(looking.reached(NOW)) == [(name, "120"), (name, "90")]


def test_only_the_gravest_of_a_look_is_told(customer, outsider):
    name, other = limit(customer), limit(outsider)
    spend(name, 100)
    spend(other, 60)
    assert rules(looking.gravest(looking.reached(NOW))) == sorted([(name, "100"), (other, "50")])


def test_a_raised_limit_tells_no_percentage_twice_in_a_period(customer):
    name = limit(customer)
    spend(name, 80)
    assert len(looking.reached(NOW)) == 2
    set_limits({name: 200}, now=NOW)
    spend(name, 90)
    assert looking.reached(NOW) == []
    spend(name, 30)
    assert rules(looking.reached(NOW)) == [(name, "100")]


def test_a_limit_of_nothing_and_one_that_nothing_was_spent_of_tell_nothing(customer, outsider):
    limit(customer, nanos=0)
    limit(outsider)
    assert looking.reached(NOW) == []


def test_a_soft_budgets_row_is_opened_in_a_new_day(customer):
    name = limit(customer, is_hard=False)
    tomorrow = NOW + timedelta(days=1)
    give_credit(customer, DOLLAR)
    assert looking.unopened(tomorrow, most=5) == []
    charge_to(customer, 1)
    open_soft_budgets(now=tomorrow)
    assert budget(name, tomorrow).limit_nanos is None
    assert looking.unopened(tomorrow, most=5) == []


def test_a_credit_limit_is_told_again_after_it_was_repaid(customer):
    set_organization_terms(
        actor=OPERATOR, organization=customer.organization, billing_mode=BillingMode.POSTPAID,
        spend_limit_nanos=None, weight=1, credit_limit_nanos=1000,
    )  # fmt: skip
    give_credit(customer, 100)
    charge_to(customer, 650)
    assert rules(looking.reached(NOW)) == [(customer.balance, "50")]
    give_credit(customer, 300)
    assert looking.reached(NOW) == []
    charge_to(customer, 300)
    suspend_credit_limit(customer.id, now=NOW)
    assert looking.reached(NOW) == []
    restore_credit_limit(customer.id, now=NOW)
    assert rules(looking.reached(NOW)) == [(customer.balance, "50")]


def day_of(customer, days_ago, nanos, busiest=None):
    day = (NOW - timedelta(days=days_ago)).date()
    DaySpend.objects.create(
        organization_id=customer.id, day=day, nanos=nanos, busiest_hour_nanos=busiest or nanos // 4
    )


def test_a_balance_is_low_below_three_days_of_the_last_weeks_pace(customer):
    """70 dollars in seven days are 10 a day: 30 last three days, 29.99 do not."""
    for days in range(7):
        day_of(customer, days, 10 * DOLLAR)
    give_credit(customer, 100 * DOLLAR)
    charge_to(customer, 70 * DOLLAR)
    assert looking.low(NOW) == []
    charge_to(customer, DOLLAR // 100)
    [low] = looking.low(NOW)
    assert (low.kind, low.rule, low.figures["nanos_per_day"]) == (
        "balance.low", "runway", 10 * DOLLAR
    )  # fmt: skip
    assert looking.low(NOW) == []
    give_credit(customer, DOLLAR)
    charge_to(customer, DOLLAR)
    assert looking.low(NOW) == []
    give_credit(customer, 10 * DOLLAR)
    assert looking.low(NOW) == []
    charge_to(customer, 11 * DOLLAR)
    assert [one.rule for one in looking.low(NOW)] == ["runway"]


@pytest.mark.parametrize(
    ("expires_in", "kept", "is_low"),
    [
        (timedelta(minutes=1), 30, True),  # a charge of a dollar leaves 29, and the 500 are gone
        (timedelta(minutes=1), 31, False),
        (timedelta(days=1), 20, True),  # ten of the 500 are used by then
        (timedelta(days=1), 21, False),
        (timedelta(days=4), 2, False),
    ],
)
def test_credit_that_expires_unused_is_not_counted_as_left(customer, expires_in, kept, is_low):
    day_of(customer, 0, 10 * DOLLAR)
    give_credit(customer, kept * DOLLAR)
    charge_to(customer, DOLLAR)
    follow(customer, DOLLAR)
    settle(customer)
    give_credit(customer, 500 * DOLLAR, expires_at=NOW + expires_in)
    assert [one.rule for one in looking.low(NOW)] == ["runway"] * is_low
    assert (runway_days(customer.id, 10 * DOLLAR, NOW) < 3) == is_low


def test_credit_that_expires_is_drawn_one_after_the_other(customer):
    """At 10 dollars a day only 10 of twice 15 are used before both expire tomorrow."""
    day_of(customer, 0, 10 * DOLLAR)
    give_credit(customer, 19 * DOLLAR)
    for _ in range(2):
        give_credit(customer, 15 * DOLLAR, expires_at=NOW + timedelta(days=1))
    charge_to(customer, 1)
    assert [one.rule for one in looking.low(NOW)] == ["runway"]
    give_credit(customer, 10 * DOLLAR, expires_at=NOW + timedelta(days=1))
    assert looking.low(NOW) == []
    assert Alert.objects.filter(ended_at__isnull=True).count() == 1


def test_usage_that_the_ledger_does_not_hold_yet_is_taken_off_once(customer):
    """Of 30 that expire tomorrow 20 are used already; 30 more last three days."""
    day_of(customer, 0, 10 * DOLLAR)
    give_credit(customer, 30 * DOLLAR, expires_at=NOW + timedelta(days=1))
    charge_to(customer, 20 * DOLLAR)
    give_credit(customer, 30 * DOLLAR)
    assert looking.low(NOW) == []


def test_a_young_customers_pace_is_of_the_days_they_have(customer):
    day_of(customer, 1, 10 * DOLLAR)
    day_of(customer, 0, 10 * DOLLAR)
    give_credit(customer, 49 * DOLLAR)
    charge_to(customer, 20 * DOLLAR)
    assert [one.figures["nanos_per_day"] for one in looking.low(NOW)] == [10 * DOLLAR]


def test_a_balance_below_the_chosen_amount_and_one_that_is_used_up(customer, outsider):
    choose_alerts(
        actor=OPERATOR, organization=customer.organization, low_balance_nanos=50,
        low_runway_days=None, unusual_factor=None,
    )  # fmt: skip
    give_credit(customer, 100)
    charge_to(customer, 51)
    give_credit(outsider, 100)
    assert rules(looking.low(NOW)) == [(customer.balance, "amount")]
    charge_to(customer, 49)
    assert rules(looking.low(NOW)) == [(customer.balance, "empty")]
    give_credit(customer, 500)
    assert looking.low(NOW) == []
    assert Alert.objects.filter(ended_at__isnull=True).count() == 0


def test_who_pays_afterwards_has_no_low_balance(customer):
    set_organization_terms(
        actor=OPERATOR, organization=customer.organization, billing_mode=BillingMode.POSTPAID,
        spend_limit_nanos=None, weight=1,
    )  # fmt: skip
    charge_to(customer, 100)
    assert looking.low(NOW) == []


@pytest.mark.parametrize(
    ("days", "usual", "today", "found"),
    [
        (7, 10 * DOLLAR, (30 * DOLLAR, DOLLAR), ["day"]),
        (7, 10 * DOLLAR, (29 * DOLLAR, DOLLAR), []),
        (7, 10 * DOLLAR, (9 * DOLLAR, 8 * DOLLAR), ["hour"]),  # usual busiest hours: 2.5 dollars
        (6, 10 * DOLLAR, (90 * DOLLAR, 9 * DOLLAR), []),  # six days say nothing of what is usual
        (7, 1000, (DOLLAR - 1, DOLLAR - 1), []),  # a million times as much, but below a dollar
        (28, 1000, (DOLLAR, 1000), ["day"]),
    ],
)
def test_spending_far_above_the_usual_is_raised_once_a_day(customer, days, usual, today, found):
    for ago in range(1, days + 1):
        day_of(customer, ago, usual)
    day_of(customer, 0, *today)
    assert [one.rule for one in looking.unusual(NOW)] == found
    assert looking.unusual(NOW + timedelta(hours=1)) == []


def test_one_wild_day_does_not_make_the_next_usual(customer):
    """The median of six days at 10 dollars and two at 1,000 is 10."""
    for ago in range(1, 9):
        day_of(customer, ago, (1000 if ago < 3 else 10) * DOLLAR)
    day_of(customer, 0, 40 * DOLLAR)
    found = {one.rule: one.figures["usual_nanos"] for one in looking.unusual(NOW)}
    assert found == {"day": 10 * DOLLAR, "hour": 2_500_000_000}


def test_midnight_begins_another_day(customer):
    midnight = datetime(2026, 11, 22, tzinfo=UTC)
    name = limit(customer)
    spend(name, 60, at=midnight - timedelta(milliseconds=1))
    assert rules(looking.reached(midnight - timedelta(milliseconds=1))) == [(name, "50")]
    spend(name, 60, at=midnight)
    assert rules(looking.reached(midnight)) == [(name, "50")]
    assert name == limit_budget_id(customer.id, "day")
