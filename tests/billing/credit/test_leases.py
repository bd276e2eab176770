"""A gateway gets what is there and never more; what it gives back is free again."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.credit.limits import available_nanos
from billing.credit.models import Lease
from billing.credit.services.leases import (
    LEASE_DURATION,
    answer,
    grant_size,
    void_abandoned_leases,
)
from billing.metering.ingest import ingest
from control.audit.models import Entry
from control.tenants.models import Organization
from serving.contract.ids import new_id
from serving.contract.lease import Ask, Granted, LeaseRequest, Refused, Return
from tests.support.usage import (
    GATEWAY,
    NOW,
    ask_for,
    broken_promises,
    give_credit,
    make_batch,
    make_event,
    with_lease,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
OTHER = "gw_2"


def give_back(lease: Granted, keep: int = 0, *, closed: bool = False, gateway: str = GATEWAY):
    given_back = Return(lease.lease_id, keep, closed)
    return answer(LeaseRequest(gateway_id=gateway, returns=(given_back,)), now=NOW)


@pytest.mark.parametrize(
    ("available", "granted"),
    [(9, None), (10, 10), (19, 10), (60, 30), (1_000, 100), (0, None), (-5, None), (None, 100)],
)
def test_a_grant_is_the_need_or_up_to_the_wish(available, granted):
    assert grant_size(need_nanos=10, want_nanos=100, available_nanos=available) == granted


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(-100, 10**12))
def test_a_grant_never_exceeds_what_is_there(need, want, available):
    granted = grant_size(need_nanos=need, want_nanos=want, available_nanos=available)
    if granted is None:
        assert available <= 0 or available < need
    else:
        assert need <= granted <= available
        assert granted == need or granted <= want


def test_a_lease_sets_money_aside(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.id, 10, 100)
    assert (lease.granted_nanos, lease.expires_at) == (100, NOW + LEASE_DURATION)
    assert available_nanos(customer.id, NOW) == 900


def test_asking_again_after_a_lost_answer_grants_nothing_twice(customer):
    give_credit(customer, 1_000)
    request = LeaseRequest(gateway_id=GATEWAY, asks=(Ask("ask_1", customer.id, 10, 100),))
    assert answer(request, now=NOW) == answer(request, now=NOW)
    assert available_nanos(customer.id, NOW) == 900


def test_another_gateways_ask_is_not_answered_with_its_lease(customer):
    give_credit(customer, 1_000)
    ask = Ask("ask_1", customer.id, 10, 100)
    answer(LeaseRequest(gateway_id=GATEWAY, asks=(ask,)), now=NOW)
    reply = answer(LeaseRequest(gateway_id=OTHER, asks=(ask,)), now=NOW)
    assert isinstance(reply.answers[0], Refused)


def test_without_credit_the_answer_is_exhausted(customer):
    refused = ask_for(customer.id, 10)
    assert (refused.code, refused.recall_in_progress) == ("credit_balance_exhausted", False)


def test_a_grant_of_credit_works_at_the_next_ask(customer):
    assert isinstance(ask_for(customer.id, 10), Refused)
    give_credit(customer, 10)
    assert isinstance(ask_for(customer.id, 10), Granted)


def test_an_unknown_budget_gets_nothing():
    assert ask_for("org_nowhere", 1).code == "credit_balance_exhausted"
    assert available_nanos("org_nowhere", NOW) == 0


def test_an_outsiders_credit_is_out_of_reach(customer, outsider):
    give_credit(outsider, 1_000)
    assert isinstance(ask_for(customer.id, 10), Refused)


def test_what_is_given_back_is_free_again(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.id, 600)
    give_back(lease, 250)
    assert available_nanos(customer.id, NOW) == 750
    give_back(lease, 250)
    assert available_nanos(customer.id, NOW) == 750


def test_a_return_never_raises_a_claim(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.id, 600)
    give_back(lease, 250)
    give_back(lease, 600)
    assert available_nanos(customer.id, NOW) == 750


def test_a_closed_lease_holds_nothing(customer):
    give_credit(customer, 1_000)
    give_back(ask_for(customer.id, 600), closed=True)
    assert available_nanos(customer.id, NOW) == 1_000


def test_a_gateway_cannot_give_back_anothers_lease(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.id, 600)
    give_back(lease, gateway=OTHER)
    assert available_nanos(customer.id, NOW) == 400


def test_idle_money_elsewhere_is_recalled(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.id, 900)
    refused = ask_for(customer.id, 500, gateway=OTHER)
    assert refused.recall_in_progress
    poll = answer(LeaseRequest(gateway_id=GATEWAY), now=NOW)
    assert poll.recalls == (lease.lease_id,)
    assert answer(LeaseRequest(gateway_id=OTHER), now=NOW).recalls == ()
    assert give_back(lease, 100).recalls == ()
    assert isinstance(ask_for(customer.id, 500, gateway=OTHER), Granted)


def test_a_vanished_gateway_is_not_waited_for(customer):
    give_credit(customer, 1_000)
    ask_for(customer.id, 900)
    later = NOW + LEASE_DURATION
    assert not ask_for(customer.id, 500, gateway=OTHER, now=later).recall_in_progress


def test_settling_moves_money_from_held_to_spent(customer, price):
    give_credit(customer, 1_000_000)
    lease = ask_for(customer.id, 400_000)
    ingest(make_batch([with_lease(make_event(customer, price), lease.lease_id)]), now=NOW)
    assert available_nanos(customer.id, NOW) == 600_000
    give_back(lease, 132_000, closed=True)
    assert available_nanos(customer.id, NOW) == 1_000_000 - 132_000
    assert broken_promises() == []


def test_an_abandoned_lease_is_voided_after_a_day_and_noted(customer):
    give_credit(customer, 1_000)
    ask_for(customer.id, 600)
    expiry = NOW + LEASE_DURATION
    assert void_abandoned_leases(now=expiry + timedelta(hours=23)) == 0
    assert void_abandoned_leases(now=expiry + timedelta(hours=24)) == 1
    assert void_abandoned_leases(now=expiry + timedelta(hours=24)) == 0
    assert available_nanos(customer.id, NOW) == 1_000
    assert Entry.objects.get(action="lease.void").details["held_nanos"] == 600


def test_a_journal_that_comes_after_the_void_is_still_settled(customer, price):
    give_credit(customer, 1_000_000)
    lease = ask_for(customer.id, 400_000)
    void_abandoned_leases(now=NOW + timedelta(days=2))
    ingest(make_batch([with_lease(make_event(customer, price), lease.lease_id)]), now=NOW)
    assert Lease.objects.get().settled_nanos == 132_000
    assert available_nanos(customer.id, NOW) == 1_000_000 - 132_000
    assert broken_promises() == []


def limit(customer, spend_limit_nanos, billing_mode="postpaid"):
    Organization.objects.filter(id=customer.id).update(
        spend_limit_nanos=spend_limit_nanos, billing_mode=billing_mode
    )


def test_a_postpaid_organization_spends_up_to_its_monthly_limit(customer, price):
    limit(customer, 200_000)
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    assert available_nanos(customer.id, NOW) == 68_000
    assert ask_for(customer.id, 132_000).code == "organization_spend_limit_exceeded"
    assert isinstance(ask_for(customer.id, 132_000, now=NOW + timedelta(days=10)), Granted)


def test_a_postpaid_organization_without_a_limit_has_none(customer):
    limit(customer, None)
    assert available_nanos(customer.id, NOW) is None
    assert ask_for(customer.id, 5, 7).granted_nanos == 7


def test_a_prepaid_organization_may_limit_its_month_too(customer):
    give_credit(customer, 1_000)
    limit(customer, 100, billing_mode="prepaid")
    assert ask_for(customer.id, 500).code == "organization_spend_limit_exceeded"


@pytest.mark.parametrize(
    ("kind", "code"),
    [("project", "project_spend_limit_exceeded"), ("key", "key_budget_exceeded")],
)
def test_projects_and_keys_have_monthly_limits_of_their_own(customer, price, kind, code):
    limited = getattr(customer, kind)
    limited.spend_limit_nanos = 200_000
    limited.save()
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    assert available_nanos(limited.id, NOW) == 68_000
    assert ask_for(limited.id, 132_000).code == code


def test_a_budget_whose_limit_was_lifted_grants_what_is_asked(customer):
    assert ask_for(customer.key.id, 5, 7).granted_nanos == 7


def test_each_part_of_a_request_is_answered(customer, outsider):
    give_credit(customer, 100)
    asks = (Ask(new_id(), customer.id, 10, 10), Ask(new_id(), outsider.id, 10, 10))
    reply = answer(LeaseRequest(gateway_id=GATEWAY, asks=asks), now=NOW)
    assert [type(one) for one in reply.answers] == [Granted, Refused]
