"""A hold ends exactly once, and what is charged and held is never more than what is granted."""

from datetime import UTC, datetime

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from serving.contract.budget import LIFETIME_STARTS_AT
from serving.usage.demand import Demand
from serving.usage.hold import Hold
from serving.usage.lease import Lease, Outbox
from serving.usage.moment import Moment
from serving.usage.purse import Purse

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def purse_of(*grants: int, budget_id: str = "balance:org_a", until: float = 100.0) -> Purse:
    purse = Purse(budget_id, (LIFETIME_STARTS_AT, None), Demand(), {}, str)
    purse.leases = [Lease(f"l{n}", budget_id, g, 0.0, until) for n, g in enumerate(grants)]
    return purse


def hold_of(purse: Purse, nanos: int) -> Hold:
    parts = purse.try_hold(nanos, 1.0)
    assert parts is not None
    return Hold(nanos, ((purse, parts),), lambda: 1.0)


def test_a_hold_ends_exactly_once() -> None:
    purse = purse_of(100)
    hold = hold_of(purse, 60)
    hold.charge(10)
    for end in (hold.void, lambda: hold.charge(5)):
        with pytest.raises(RuntimeError):
            end()
    assert (purse.leases[0].charged_nanos, purse.leases[0].held_nanos) == (10, 0)


def test_a_hold_spans_leases_and_its_charge_takes_the_first_first() -> None:
    purse = purse_of(50, 50)
    charges = hold_of(purse, 80).charge(60)
    assert [(one.lease_id, one.charged_nanos) for one in charges] == [("l0", 50), ("l1", 10)]
    assert purse.spendable(1.0) == 40


def test_more_than_was_held_is_charged_too() -> None:
    purse = purse_of(50)
    [charge] = hold_of(purse, 30).charge(70)
    assert charge.charged_nanos == 70
    assert (purse.spendable(1.0), purse.held_nanos) == (0, 0)


def test_a_charge_that_could_not_be_made_durable_is_undone() -> None:
    purse = purse_of(50)
    hold = hold_of(purse, 30)
    hold.charge(20)
    hold.revoke()
    assert (purse.spendable(1.0), purse.leases[0].unacknowledged) == (50, 0)


class Spending(RuleBasedStateMachine):
    """Requests on two budgets, in any order, while leases come, end, and are lost."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.outbox: Outbox = {}
        self.purses = [self.new_purse("balance:org_a"), self.new_purse("limit:org_a")]
        self.holds: list[Hold] = []
        self.charged = 0
        self.leases: list[Lease] = []

    def new_purse(self, budget_id: str) -> Purse:
        return Purse(budget_id, (LIFETIME_STARTS_AT, None), Demand(), self.outbox, str)

    @rule(which=st.integers(0, 1), nanos=st.integers(0, 1_000), seconds=st.integers(1, 900))
    def grant(self, which: int, nanos: int, seconds: int) -> None:
        purse, name = self.purses[which], f"l{len(self.leases)}"
        lease = Lease(name, purse.budget_id, nanos, self.now, self.now + seconds)
        purse.leases.append(lease)
        self.leases.append(lease)

    @rule(nanos=st.integers(0, 800))
    def hold(self, nanos: int) -> None:
        could = all(purse.spendable(self.now) >= nanos for purse in self.purses)
        taken = [(purse, purse.try_hold(nanos, self.now)) for purse in self.purses]
        for purse, parts in taken:
            if parts is not None and not could:
                purse.release(parts)
        assert could == all(parts is not None for _, parts in taken)
        if could:
            held = tuple((purse, parts) for purse, parts in taken if parts is not None)
            self.holds.append(Hold(nanos, held, lambda: self.now))

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
        for purse in self.purses:
            purse.look(Moment(self.now, NOW))

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
        for purse in self.purses:
            assert purse.held_nanos == sum(hold.nanos for hold in self.holds)

    def teardown(self) -> None:
        for hold in self.holds:
            hold.void()
        assert sum(lease.held_nanos for lease in self.leases) == 0
        assert all(purse.held_nanos == 0 for purse in self.purses)
        assert sum(lease.charged_nanos for lease in self.leases) == self.charged


TestSpending = Spending.TestCase
