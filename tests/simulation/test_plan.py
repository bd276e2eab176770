"""Plans: many seeds see a month turn, after requests and with closes at once; in some of them
customers pay through Stripe."""

from tests.simulation import paying
from tests.simulation.deeds.table import DEEDS
from tests.simulation.paying import is_paying, make_paying_plan
from tests.simulation.plan import CALLS, CALLS_AFTER, EVENTS, make_plan


def test_every_deed_of_a_plan_can_be_done():
    paid = paying.CALLS.keys() | paying.CALLS_AFTER.keys()
    assert DEEDS.keys() == CALLS.keys() | CALLS_AFTER.keys() | EVENTS.keys() | paid


def test_most_seeds_see_the_month_turn_and_close_it_beside_others():
    plans = [make_plan(seed) for seed in range(200)]
    turning = [next(step for step in plan if step.turns) for plan in plans if is_turning(plan)]
    assert 90 < len(turning) < 150
    closes = [sum(deed.kind == "month" for deed in step.deeds) for step in turning]
    assert min(closes) == 1
    assert max(closes) >= 2
    assert all(len(step.deeds) > count for step, count in zip(turning, closes, strict=True))


def test_in_some_seeds_customers_pay_through_stripe_beside_all_else():
    assert 60 < sum(is_paying(seed) for seed in range(200)) < 100
    plan = make_plan(7)
    paid = make_paying_plan(7, plan)
    assert paid == make_paying_plan(7, plan)
    began = len(paid) - len(plan) + 1
    assert (began, paid[0]) == (1 + len(paying.OPENING), plan[0])
    kinds = {deed.kind for step in paid for deed in step.deeds}
    assert kinds & paying.CALLS.keys()
    assert kinds & CALLS.keys()
    assert [step.turns for step in paid[began:]] == [step.turns for step in plan[1:]]


def is_turning(plan):
    return any(step.turns for step in plan)
