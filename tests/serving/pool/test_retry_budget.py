"""Retries of an organization and of a whole gateway, against their bounds."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.pool import retry_budget
from serving.pool.retry_budget import (
    GATEWAY_SAVED_MAX,
    GATEWAY_SHARE,
    SAVED_MAX,
    SHARE,
    OrganizationRetryBudgets,
    RetryBudget,
)

FEW_ORGANIZATIONS = st.integers(0, 3)
MANY_ORGANIZATIONS = st.integers(0, 10_000)
EVENTS = st.lists(
    st.tuples(FEW_ORGANIZATIONS | MANY_ORGANIZATIONS, st.integers(0, 60), st.integers(0, 60)),
    max_size=60,
)
"""An organization sends so many requests, and wants so many retries."""


def test_retries_are_at_most_a_tenth_of_the_traffic() -> None:
    budget = RetryBudget()
    taken = 0
    for _ in range(1_000):
        budget.record_request()
        taken += budget.take()
    assert taken <= 0.1 * 1_000 + 10


def test_an_organization_has_second_tries_whatever_others_took() -> None:
    budgets = OrganizationRetryBudgets()
    for organization in (f"org_{number}" for number in range(10)):
        assert sum(budgets.take(organization) for _ in range(1_000)) == SAVED_MAX
    for _ in range(1_000):
        budgets.record_request("neighbour")
    assert budgets.take("neighbour")
    for _ in range(9):
        budgets.record_request("org_0")
    assert not budgets.take("org_0")
    for _ in range(2):
        budgets.record_request("org_0")
    assert budgets.take("org_0")


def test_budgets_are_remembered_of_so_many_organizations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_budget, "ORGANIZATIONS_MAX", 3)
    budgets = OrganizationRetryBudgets()
    for organization in ("a", "b", "c", "d"):
        assert budgets.take(organization)
    assert list(budgets._budgets) == ["b", "c", "d"]
    for _ in range(11):
        budgets.record_request("b")
    assert list(budgets._budgets) == ["c", "d"], "a full budget need not be remembered"


@given(EVENTS)
def test_retries_are_bounded_of_each_organization_and_of_all_together(
    events: list[tuple[int, int, int]],
) -> None:
    budgets = OrganizationRetryBudgets()
    requests, taken = Counter[str](), Counter[str]()
    for number, sent, wanted in events:
        organization = f"org_{number}"
        for _ in range(sent):
            budgets.record_request(organization)
        requests[organization] += sent
        taken[organization] += sum(budgets.take(organization) for _ in range(wanted))
        bound = GATEWAY_SHARE * requests.total() + GATEWAY_SAVED_MAX
        assert taken.total() <= bound + 1e-6
        assert taken[organization] <= SHARE * requests[organization] + SAVED_MAX + 1e-6


def test_retries_of_ten_thousand_organizations_that_all_fail_are_a_fifth_of_their_traffic() -> None:
    budgets, taken, requests = OrganizationRetryBudgets(), 0, 0
    for number in range(10_000):
        for _ in range(2):
            budgets.record_request(f"org_{number}")
            requests += 1
            taken += budgets.take(f"org_{number}")
    assert GATEWAY_SHARE * requests < taken <= GATEWAY_SHARE * requests + GATEWAY_SAVED_MAX


@given(st.lists(st.integers(0, 500), max_size=20))
def test_an_organization_of_few_requests_has_its_retry_while_another_fails_all_the_time(
    floods: list[int],
) -> None:
    budgets = OrganizationRetryBudgets()
    for number, flood in enumerate(floods):
        for _ in range(flood):
            budgets.record_request("flood")
            budgets.take("flood")
        budgets.record_request("few")
        if number < SAVED_MAX:
            assert budgets.take("few")
