"""Whatever gateways, ingest and operators do, in whatever order: the figures of a budget follow."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from billing.credit.models import Budget, Lease
from billing.credit.services.budgets import set_limits
from billing.credit.services.leases import charge, grant_leases, take_back, void_abandoned_leases
from billing.ledger.causes import PREPAID_EXPIRY, PREPAID_GRANT
from billing.ledger.post import post, transfer
from control.feed.database_identity import database_id
from serving.contract.ids import new_id
from serving.contract.lease import LeaseAsk, LeaseDenial, LeaseGrant, LeaseReturn
from tests.fixtures.books import differences
from tests.fixtures.usage import NOW, give_credit, make_customer

NANOS = st.integers(0, 1_000)
GATEWAYS = st.sampled_from(["gw_1", "gw_2"])


class AnyOrder(RuleBasedStateMachine):
    """One prepaid organization, its balance, two gateways."""

    leases: Any = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.customer = make_customer()
        give_credit(self.customer, 1)
        self.charged = self.funded = 0
        self.row = Budget.objects.get(budget_id=self.customer.balance).pk

    @property
    def budget(self) -> Budget:
        return Budget.objects.get(pk=self.row)

    @rule(nanos=st.integers(-500, 5_000))
    def fund(self, nanos: int) -> None:
        rule = PREPAID_GRANT if nanos > 0 else PREPAID_EXPIRY
        if nanos:
            grant_id = new_id()
            legs = transfer(rule, abs(nanos), grant_id)
            post(rule, organization_id=self.customer.id, legs=legs, grant=grant_id, now=NOW)
        self.funded += nanos

    @rule(target=leases, gateway=GATEWAYS, need=NANOS, want=st.integers(0, 10_000))
    def ask(self, gateway: str, need: int, want: int) -> Any:
        return self.asked(gateway, need, want)

    @rule(target=leases, gateway=GATEWAYS, too_much=st.booleans())
    def ask_for_all_there_is(self, gateway: str, too_much: bool) -> Any:
        """The last nano may be had, and not one more."""
        available = max(self.budget.available_nanos or 0, 0)
        lease = self.asked(gateway, available + too_much, 0)
        has_lease = isinstance(lease, tuple)
        assert has_lease == (available > 0 and not too_much)
        assert not has_lease or self.budget.available_nanos == 0
        return lease

    def asked(self, gateway: str, need: int, want: int) -> Any:
        before = self.budget.available_nanos or 0
        ask = LeaseAsk(new_id(), self.customer.balance, need, want, NOW)
        given = {"gateway_id": gateway, "asks": [ask], "lineage": database_id(), "now": NOW}
        (reply,) = grant_leases(**given)
        assert grant_leases(**given) == (reply,)
        if not isinstance(reply, LeaseGrant):
            assert isinstance(reply, LeaseDenial)
            assert before < max(need, 1)
            assert reply.held_nanos == sum(
                one.held_nanos
                for one in Lease.objects.exclude(gateway_id=gateway)
                if one.stopped_at
            )
            return multiple()
        assert need <= reply.granted_nanos <= before
        return reply.lease_id, gateway

    @rule(one=leases, nanos=NANOS)
    def settle(self, one: tuple[str, str], nanos: int) -> None:
        charge({self.row: nanos}, {int(one[0].partition(".")[2]): nanos})
        self.charged += nanos

    @rule(nanos=NANOS)
    def charge_without_a_lease(self, nanos: int) -> None:
        charge({self.row: nanos}, {})
        self.charged += nanos

    @rule(one=leases, keep=NANOS)
    def give_back(self, one: tuple[str, str], keep: int) -> None:
        self.take_back(one, keep, closed=False)

    @rule(one=consumes(leases), keep=NANOS)
    def close(self, one: tuple[str, str], keep: int) -> None:
        self.take_back(one, keep, closed=True)

    @rule(one=leases, keep=NANOS)
    def give_back_as_another(self, one: tuple[str, str], keep: int) -> None:
        before = self.budget.pending_nanos
        self.take_back((one[0], "gw_3"), keep, closed=True)
        assert self.budget.pending_nanos == before

    @rule(hours=st.integers(0, 48))
    def void(self, hours: int) -> None:
        void_abandoned_leases(now=NOW + timedelta(hours=hours))

    @rule(line=st.integers(0, 2_000))
    def set_limit(self, line: int) -> None:
        set_limits({self.customer.balance: line}, now=NOW)
        set_limits({self.customer.balance: 0}, now=NOW)

    def take_back(self, one: tuple[str, str], keep: int, *, closed: bool) -> None:
        back = [LeaseReturn(one[0], keep, closed)]
        taken = take_back(gateway_id=one[1], returns=back, lineage=database_id(), now=NOW)
        assert taken == (one[0],)

    @invariant()
    def pending_is_what_leases_hold_and_posted_what_was_charged(self) -> None:
        row = self.budget
        assert differences() == []
        assert row.pending_nanos == sum(one.held_nanos for one in Lease.objects.all())
        assert (row.posted_nanos, row.funded_nanos) == (self.charged, self.funded + 1)
        assert row.limit_nanos == row.funded_nanos


class RolledBack(AnyOrder):
    """The machine, each run of it in a transaction that is rolled back."""

    def __init__(self) -> None:
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        super().__init__()

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.atomic.__exit__(None, None, None)


@pytest.mark.integration
@pytest.mark.django_db
def test_the_figures_follow_whatever_the_order() -> None:
    run_state_machine_as_test(
        RolledBack, settings=settings(max_examples=15, stateful_step_count=25, deadline=None)
    )
