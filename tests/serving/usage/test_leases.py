"""A hold ends exactly once, and what is charged and held is never more than what is granted."""

from datetime import UTC, datetime

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from serving.contract.budget import LIFETIME_STARTS_AT
from serving.usage.clock import ClockReading
from serving.usage.lease import Lease, Outbox
from serving.usage.lease_balance import LeaseBalance
from serving.usage.lease_refill import SpendForecast
from serving.usage.leases import BudgetReservation

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def balance_of(
    *grants: int, budget_id: str = "balance:org_a", until: float = 100.0
) -> LeaseBalance:
    balance = LeaseBalance(budget_id, (LIFETIME_STARTS_AT, None), SpendForecast(), {}, str)
    balance.leases = [Lease(f"l{n}", budget_id, g, 0.0, until) for n, g in enumerate(grants)]
    return balance


def hold_of(balance: LeaseBalance, nanos: int) -> BudgetReservation:
    parts = balance.try_reserve(nanos, 1.0)
    assert parts is not None
    return BudgetReservation(nanos, ((balance, parts),), lambda: 1.0)


def test_a_hold_ends_exactly_once() -> None:
    balance = balance_of(100)
    hold = hold_of(balance, 60)
    hold.charge(10)
    for end in (hold.void, lambda: hold.charge(5)):
        with pytest.raises(RuntimeError):
            end()
    assert (balance.leases[0].charged_nanos, balance.leases[0].held_nanos) == (10, 0)


def test_a_hold_spans_leases_and_its_charge_takes_the_first_first() -> None:
    balance = balance_of(50, 50)
    charges = hold_of(balance, 80).charge(60)
    assert [(one.lease_id, one.charged_nanos) for one in charges] == [("l0", 50), ("l1", 10)]
    assert balance.spendable(1.0) == 40


def test_more_than_was_held_is_charged_too() -> None:
    balance = balance_of(50)
    [charge] = hold_of(balance, 30).charge(70)
    assert charge.charged_nanos == 70
    assert (balance.spendable(1.0), balance.held_nanos) == (0, 0)


def test_a_charge_that_could_not_be_made_durable_is_undone() -> None:
    balance = balance_of(50)
    hold = hold_of(balance, 30)
    hold.charge(20)
    hold.revoke()
    assert (balance.spendable(1.0), balance.leases[0].unacknowledged) == (50, 0)


class Spending(RuleBasedStateMachine):
    """Requests on two budgets, in any order, while leases come, end, and are lost."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.outbox: Outbox = {}
        self.balances = [self.new_balance("balance:org_a"), self.new_balance("limit:org_a")]
        self.holds: list[BudgetReservation] = []
        self.charged = 0
        self.leases: list[Lease] = []

    def new_balance(self, budget_id: str) -> LeaseBalance:
        return LeaseBalance(
            budget_id, (LIFETIME_STARTS_AT, None), SpendForecast(), self.outbox, str
        )

    @rule(which=st.integers(0, 1), nanos=st.integers(0, 1_000), seconds=st.integers(1, 900))
    def grant(self, which: int, nanos: int, seconds: int) -> None:
        balance, name = self.balances[which], f"l{len(self.leases)}"
        lease = Lease(name, balance.budget_id, nanos, self.now, self.now + seconds)
        balance.leases.append(lease)
        self.leases.append(lease)

    @rule(nanos=st.integers(0, 800))
    def hold(self, nanos: int) -> None:
        could = all(balance.spendable(self.now) >= nanos for balance in self.balances)
        taken = [(balance, balance.try_reserve(nanos, self.now)) for balance in self.balances]
        for balance, parts in taken:
            if parts is not None and not could:
                balance.release(parts)
        assert could == all(parts is not None for _, parts in taken)
        if could:
            held = tuple((balance, parts) for balance, parts in taken if parts is not None)
            self.holds.append(BudgetReservation(nanos, held, lambda: self.now))

    @rule(at=st.integers(0, 100), share=st.integers(0, 100), ending=st.sampled_from("cvr"))
    def end(self, at: int, share: int, ending: str) -> None:
        if not self.holds:
            return
        hold = self.holds.pop(at % len(self.holds))
        if ending == "v":
            hold.void()
            return
        hold.charge(hold.nanos * share // 100)
        if ending == "r":
            hold.revoke()
        else:
            self.charged += 2 * (hold.nanos * share // 100)

    @rule(seconds=st.integers(1, 700))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        for balance in self.balances:
            balance.next_ask(ClockReading(self.now, NOW))

    @rule(at=st.integers(0, 100), lost=st.booleans())
    def recall_or_lose(self, at: int, lost: bool) -> None:
        if not self.leases:
            return
        lease = self.leases[at % len(self.leases)]
        if lost:
            lease.abandon()
        else:
            lease.stop(self.outbox)

    @rule(lower=st.booleans())
    def give_back(self, lower: bool) -> None:
        """Billing takes what it is told: it never grows, and never falls below what is charged."""
        for lease in list(self.outbox.values()):
            back = lease.due_return()
            if back is not None and lower:
                assert lease.charged_nanos <= back.keep_nanos <= lease.granted_nanos
                assert lease.kept_nanos is None or back.keep_nanos <= lease.kept_nanos
                lease.kept_nanos = back.keep_nanos

    @invariant()
    def charged_and_held_are_within_what_is_granted(self) -> None:
        for lease in self.leases:
            assert 0 <= lease.charged_nanos + lease.held_nanos <= lease.granted_nanos
            assert lease.held_nanos >= 0
        for balance in self.balances:
            assert balance.held_nanos == sum(hold.nanos for hold in self.holds)

    def teardown(self) -> None:
        for hold in self.holds:
            hold.void()
        assert sum(lease.held_nanos for lease in self.leases) == 0
        assert all(balance.held_nanos == 0 for balance in self.balances)
        assert sum(lease.charged_nanos for lease in self.leases) == self.charged


TestSpending = Spending.TestCase
