"""Credit by grant: what is left of each adds up to the balance, and the forecast ends with it."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.credit.credits import Credit, credit_by_grant, forecast, open_credit
from billing.credit.models import CreditGrant, GrantKind, GrantState
from billing.credit.selectors import balance_nanos, grants
from billing.credit.services.grants import expire_grants, reverse_grant
from control.permissions import Actor
from tests.fixtures.spending import charge_to, follow, settle
from tests.fixtures.usage import NOW, give_credit

OPERATOR = Actor.for_system("tests")
DAY = timedelta(days=1)
integration = [pytest.mark.integration, pytest.mark.django_db]


def states(customer, now=NOW):
    return {
        one.grant.reason: (one.state.value, one.remaining_nanos)
        for one in credit_by_grant(
            customer.id, grants(customer.organization).values_list("id", flat=True), now
        )
    }


class TestCredits:
    pytestmark = integration

    @pytest.mark.parametrize("is_posted", [False, True])
    def test_usage_draws_at_once_what_expires_soonest_and_promotional_first(
        self, customer, outsider, is_posted
    ):
        ends_at = NOW + DAY
        give_credit(customer, 50, reason="paid for ever")
        give_credit(customer, 30, reason="gift for ever", kind=GrantKind.PROMOTIONAL)
        give_credit(customer, 20, reason="paid, ends", expires_at=ends_at)
        give_credit(
            customer, 10, reason="gift, ends", kind=GrantKind.PROMOTIONAL, expires_at=ends_at
        )
        give_credit(outsider, 7)
        for used, left in ((5, (5, 20, 30, 50)), (20, (0, 5, 30, 50)), (40, (0, 0, 0, 45))):
            charge_to(customer, used)
            if is_posted:
                follow(customer, used, before=ends_at)
                settle(customer)
            names = ("gift, ends", "paid, ends", "gift for ever", "paid for ever")
            found = states(customer)
            assert tuple(found[name][1] for name in names) == left
            assert sum(left) == balance_nanos(customer.id)
            assert [found[name][0] for name in names] == [
                "active" if nanos else "used" for nanos in left
            ]

    def test_what_became_of_each_grant_is_told(self, customer):
        ends_at = NOW + DAY
        give_credit(customer, 10, reason="used", expires_at=ends_at - DAY / 2)
        charge_to(customer, 10)
        follow(customer, 10, before=ends_at - DAY / 2)
        settle(customer)
        give_credit(customer, 10, reason="expires", expires_at=ends_at)
        mistake = give_credit(customer, 10, reason="mistake")
        give_credit(customer, 10, reason="stays")
        reverse_grant(actor=OPERATOR, grant_id=mistake.id, reason="twice", now=NOW)
        before = states(customer)
        assert before == {
            "used": ("used", 0), "expires": ("active", 10), "mistake": ("reversed", 0),
            "stays": ("active", 10),
        }  # fmt: skip
        assert states(customer, ends_at)["expires"] == ("expired", 10)
        assert expire_grants(now=ends_at + DAY) == 2
        assert states(customer, ends_at + DAY) == before | {"expires": ("expired", 0)}

    def test_grants_that_are_used_up_are_not_read(self, customer, django_assert_num_queries):
        give_credit(customer, 10)
        charge_to(customer, 10)
        follow(customer, 10)
        settle(customer)
        last = give_credit(customer, 5)
        with django_assert_num_queries(2):
            [found] = open_credit([customer.id], NOW)[customer.id]
        assert (found.grant.id, found.remaining_nanos) == (last.id, 5)

    def test_a_debt_leaves_nothing(self, customer):
        give_credit(customer, 10)
        charge_to(customer, 25)
        assert [one.remaining_nanos for one in open_credit([customer.id], NOW)[customer.id]] == [0]


def credit(nanos, days=None, kind=GrantKind.PREPAID, state=GrantState.ACTIVE):
    expires_at = None if days is None else NOW + days * DAY
    grant = CreditGrant(kind=kind, amount_nanos=nanos, expires_at=expires_at, granted_at=NOW)
    return Credit(grant, nanos, state)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("found", "pace", "days", "unused"),
    [
        ([], 0, None, 0),
        ([], 5, 0, 0),
        ([credit(100)], 0, None, 0),
        ([credit(100)], 7, 14, 0),
        ([credit(500, 1 / 1440), credit(14)], 1, 14, 500),  # it ends in a minute
        ([credit(500, 2), credit(10)], 3, 5, 494),
        ([credit(6, 2), credit(10)], 3, 5, 0),
        ([credit(10), credit(500, 10)], 3, 13, 470),
        ([credit(30, 1), credit(30, 2), credit(30, 3)], 10, 3, 60),
        ([credit(100, 5), credit(20, kind=GrantKind.PROMOTIONAL)], 0, None, 100),
        ([credit(100, -1, state=GrantState.EXPIRED), credit(20)], 10, 2, 0),
        ([credit(9 * 10**18, 300_000)], 9 * 10**18, 1, 0),
    ],
)
def test_the_forecast_counts_what_is_used_before_it_expires(found, pace, days, unused):
    ahead = forecast(found, pace, NOW)
    assert (ahead.days, ahead.unused_nanos) == (days, unused)


GRANTS = st.lists(st.tuples(st.integers(1, 10**6), st.none() | st.integers(1, 60)), max_size=6)


@pytest.mark.unit
@given(GRANTS, st.integers(1_000, 10**5))
def test_the_forecast_is_what_happens_day_by_day(grants, pace):
    found = [credit(nanos, days) for nanos, days in grants]
    ahead = forecast(found, pace, NOW)
    left = {index: nanos for index, (nanos, _) in enumerate(grants)}
    ends = {index: days if days is not None else 10**9 for index, (_, days) in enumerate(grants)}
    order = sorted(left, key=ends.__getitem__)
    spent, day = 0, 0
    while True:
        rest = pace
        for index in order:
            if ends[index] > day:
                part = min(left[index], rest)
                left[index] -= part
                rest -= part
        spent += pace - rest
        if rest:
            break
        day += 1
    assert ahead.unused_nanos == sum(nanos for nanos, _ in grants) - spent
    assert ahead.days == day
