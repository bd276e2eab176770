"""Credit is given once per key, spent soonest-to-expire first, and expires in parts."""

from datetime import datetime, timedelta

import pytest

from billing.credit.models import GrantKind
from billing.credit.selectors import (
    CreditSource,
    balance_nanos,
    budget,
    credit_sources,
    grants,
    owed_nanos,
)
from billing.credit.services.draws import draw
from billing.credit.services.grants import expire_grants, reverse_grant
from billing.credit.services.leases import charge, take_back
from billing.ledger.causes import AccountKind, Cause
from billing.ledger.models import Entry, Transaction
from billing.ledger.selectors import balance_nanos as account_nanos
from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from control.feed.database_identity import database_id
from control.permissions import Actor
from serving.contract.lease import LeaseReturn
from tests.fixtures.spending import TODAY, agree, charge_to, follow, remaining, settle, use
from tests.fixtures.usage import GATEWAY, NOW, ask_for, give_credit, make_customer

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
HOUR = timedelta(hours=1)
OPERATOR = Actor.for_system("tests")


# Giving


def test_a_grant_can_be_spent_at_once(customer, outsider):
    give_credit(customer, 500)
    assert (balance_nanos(customer.id), balance_nanos(outsider.id)) == (500, 0)
    assert [grant.remaining_nanos for grant in grants(customer.organization)] == [500]
    assert not grants(outsider.organization)
    assert agree(customer)


def test_a_double_submit_grants_once(customer):
    first = give_credit(customer, 500, idempotency_key="form-1")
    again = give_credit(customer, 500, idempotency_key="form-1")
    assert first == again
    assert balance_nanos(customer.id) == 500
    assert AuditEvent.objects.filter(action="credit.grant").count() == 1


def test_one_key_for_two_different_grants_is_refused(customer):
    give_credit(customer, 500, idempotency_key="form-1")
    with pytest.raises(Conflict, match="500 nanos"):
        give_credit(customer, 501, idempotency_key="form-1")


def test_the_same_key_serves_two_organizations(customer, outsider):
    give_credit(customer, 500, idempotency_key="form-1")
    give_credit(outsider, 700, idempotency_key="form-1")
    assert balance_nanos(outsider.id) == 700


@pytest.mark.parametrize(
    "change",
    [{"nanos": 0}, {"nanos": -1}, {"nanos": 2**63}, {"idempotency_key": ""},
     {"idempotency_key": "x" * 101}],
)  # fmt: skip
def test_a_senseless_grant_is_refused(customer, change):
    with pytest.raises(InvalidValue):
        give_credit(customer, **{"nanos": 5} | change)


def test_only_operators_grant(customer):
    owner = Actor("user", "user_1", "o@acme.test", "user_1", customer.id, "owner")
    with pytest.raises(NotPermitted):
        give_credit(customer, 5, actor=owner)


def test_nobody_is_given_nothing_to(customer):
    with pytest.raises(ObjectNotFound):
        give_credit(customer, 5, organization_id="org_nowhere")


# Drawing

E1, E2 = NOW + HOUR, NOW + 2 * HOUR


def source(name: str, expires_at: datetime | None, left: int, expired: int = 0) -> CreditSource:
    return CreditSource(name, "org_1", "prepaid", expires_at, left, expired)


@pytest.mark.parametrize(
    ("nanos", "before", "parts", "owed"),
    [
        # received before E1: all three are valid, the soonest first: 50 of a, 20 of b
        (70, E1, {"a": 50, "b": 20}, 0),
        # 50 + 100 + 200 = 350 of 400; 50 are owed
        (400, E1, {"a": 50, "b": 100, "c": 200}, 50),
        # received between E1 and E2: a is over
        (120, E2, {"b": 100, "c": 20}, 0),
        # received after every expiry: only what never expires
        (250, None, {"c": 200}, 50),
        (0, E1, {}, 0),
    ],
)
def test_usage_draws_what_was_valid_when_it_was_received(nanos, before, parts, owed):
    sources = [source("a", E1, 50), source("b", E2, 100), source("c", None, 200)]
    drawn = draw(nanos, sources, before)
    assert {one.grant_id: part for one, part in drawn.taken} == parts
    assert drawn.owed_nanos == owed


def test_late_usage_draws_on_what_expiry_took():
    """10 are left and 40 expired: 45 are had all the same, 35 of them back from the expiry."""
    drawn = draw(45, [source("a", E1, 10, expired=40), source("c", None, 200)], E1)
    assert [(one.grant_id, part) for one, part in drawn.taken] == [("a", 45)]


def test_drawing_takes_no_more_than_there_is():
    assert draw(70, [], None).owed_nanos == 70


def test_what_expires_first_is_spent_first_and_favours_before_payments(customer):
    """150 of 10 (promotional, E1), 50 (paid, E1), 100 (paid, E2), 1,000 (never):
    10 + 50 + 90."""
    never = give_credit(customer, 1_000)
    later = give_credit(customer, 100, expires_at=E2)
    paid = give_credit(customer, 50, expires_at=E1)
    favour = give_credit(customer, 10, expires_at=E1, kind=GrantKind.PROMOTIONAL)
    use(customer, 150, E1)
    settle(customer)
    assert remaining(favour, paid, later, never) == [0, 0, 10, 1_000]
    assert agree(customer)


def test_pieces_of_a_day_are_one_ledger_transaction(customer, outsider):
    """Two causes of credit on two days of two organizations: four transactions."""
    yesterday = TODAY - timedelta(days=1)
    for one in (customer, outsider):
        give_credit(one, 100, expires_at=E1)
        give_credit(one, 100)
        use(one, 60, E1, yesterday)
        use(one, 10, E1)
        use(one, 70)
        use(one, 90, E2)
    assert settle(customer, outsider, through=yesterday) == 2
    assert settle(customer, outsider) == 2
    posted = Transaction.objects.filter(kind=Cause.USAGE, organization_id=customer.id)
    assert [one.accounted_on for one in posted.order_by("accounted_on")] == [yesterday, TODAY]
    # day one: 60 of the first. Day two: 10 of the first; 90 and 70 of the second's 100, 60 owed,
    # which the 30 that are left of the first pay, since it is valid now; 30 are owed.
    assert owed_nanos(customer.id) == 30
    assert account_nanos(customer.id, AccountKind.REVENUE) == -230
    assert agree(customer)
    assert agree(outsider)


def test_postings_of_many_organizations_take_few_statements(django_assert_max_num_queries):
    customers = [make_customer(f"organization {number}") for number in range(6)]
    for one in customers:
        use(one, 10)
    with django_assert_max_num_queries(14):
        settle(*customers)


def test_nothing_unposted_posts_nothing(customer):
    assert settle(customer) == 0
    follow(customer, 0)
    settle(customer)
    assert not Entry.objects.exists()


def test_debt_is_paid_when_credit_appears(customer):
    """100 are used on nothing. 30 of credit pay 30, 100 more pay 70 and leave 30."""
    give_credit(customer, 1)
    use(customer, 101)
    settle(customer)
    assert owed_nanos(customer.id) == 100
    first = give_credit(customer, 30)
    assert (owed_nanos(customer.id), remaining(first)) == (70, [0])
    second = give_credit(customer, 100, kind=GrantKind.PROMOTIONAL)
    assert (owed_nanos(customer.id), remaining(second)) == (0, [30])
    assert balance_nanos(customer.id) == 30
    assert agree(customer)


def test_debt_is_not_paid_from_credit_that_is_over(customer):
    over = give_credit(customer, 50, expires_at=NOW - HOUR)
    use(customer, 20)
    settle(customer)
    assert (owed_nanos(customer.id), remaining(over)) == (20, [50])


# Expiry


@pytest.mark.parametrize(
    ("kind", "goes_to"),
    [
        (GrantKind.PROMOTIONAL, AccountKind.PROMOTION_EXPENSE),
        (GrantKind.PREPAID, AccountKind.BREAKAGE),
    ],
)
def test_expiry_takes_what_is_left_once(customer, kind, goes_to):
    give_credit(customer, 500, kind=kind, expires_at=E1)
    before = account_nanos(customer.id, goes_to)
    assert expire_grants(now=E1 - timedelta(seconds=1)) == 0
    assert expire_grants(now=E1) == 1
    assert expire_grants(now=E1) == 0
    assert account_nanos(customer.id, goes_to) - before == -500
    assert balance_nanos(customer.id) == 0
    assert agree(customer)


def test_expiry_posts_what_was_followed_before_it_takes(customer):
    """500 less 200 of usage: 300 expire, and the usage owes nothing."""
    grant = give_credit(customer, 500, expires_at=E1)
    use(customer, 200, E1)
    expire_grants(now=E1)
    grant.refresh_from_db()
    assert (grant.expired_nanos, owed_nanos(customer.id)) == (300, 0)
    assert agree(customer)


def test_expiry_leaves_what_a_lease_from_before_may_still_spend(customer):
    """500, of which a lease holds 200: 300 expire at once; 150 are used and the lease closes;
    then the last 50 expire."""
    grant = give_credit(customer, 500, expires_at=E1)
    lease = ask_for(customer.balance, 200)
    assert expire_grants(now=E1) == 0
    assert remaining(grant) == [200]
    assert balance_nanos(customer.id) == 200
    row = int(lease.lease_id.partition(".")[2])
    charge({budget(customer.balance, NOW).pk: 150}, {row: 150})
    follow(customer, 150, E1)
    assert expire_grants(now=E2) == 0
    assert remaining(grant) == [50]
    closed = [LeaseReturn(lease.lease_id, 150, True)]
    take_back(gateway_id=GATEWAY, returns=closed, lineage=database_id(), now=NOW)
    assert expire_grants(now=E2) == 1
    assert (remaining(grant), balance_nanos(customer.id)) == ([0], 0)
    assert agree(customer)


def test_expiry_waits_an_hour_for_charges_on_their_way_into_the_ledger(customer):
    """200 of 500 are charged and not followed yet: they stay for that usage."""
    grant = give_credit(customer, 500, expires_at=E1)
    charge_to(customer, 200)
    assert expire_grants(now=E1) == 0
    assert (remaining(grant), balance_nanos(customer.id)) == ([200], 0)
    follow(customer, 200, E1)
    assert expire_grants(now=E1) == 1
    assert (remaining(grant), owed_nanos(customer.id)) == ([0], 0)
    assert agree(customer)


def test_expiry_waits_no_longer_than_that(customer):
    grant = give_credit(customer, 500, expires_at=E1)
    charge_to(customer, 200)
    assert expire_grants(now=E1 + HOUR) == 1
    assert remaining(grant) == [0]


def test_late_usage_undoes_an_expiry_as_far_as_it_needs(customer):
    """500 expired whole. 120 received before come late: 120 are undone, 380 stay expired.
    400 more: 380 are undone, 20 are owed. What comes from after the expiry gets nothing."""
    grant = give_credit(customer, 500, expires_at=E1)
    expire_grants(now=E1)
    assert balance_nanos(customer.id) == 0
    use(customer, 120, E1)
    settle(customer, now=E2)
    grant.refresh_from_db()
    assert (grant.expired_nanos, owed_nanos(customer.id)) == (380, 0)
    assert (balance_nanos(customer.id), agree(customer)) == (0, True)
    use(customer, 5)
    use(customer, 400, E1)
    settle(customer, now=E2)
    grant.refresh_from_db()
    assert (grant.expired_nanos, owed_nanos(customer.id)) == (0, 25)
    assert agree(customer)


# Reversal


def test_a_grant_given_by_mistake_is_taken_back(customer):
    """300 of 500 are left after usage of 200: 300 go back to where they came from."""
    grant = give_credit(customer, 500, kind=GrantKind.PROMOTIONAL)
    use(customer, 200)
    taken = reverse_grant(actor=OPERATOR, grant_id=grant.id, reason="mistake", now=NOW)
    assert (taken, remaining(grant), balance_nanos(customer.id)) == (300, [0], 0)
    assert account_nanos(customer.id, AccountKind.PROMOTION_EXPENSE) == 200
    assert AuditEvent.objects.get(action="credit.reverse").details["why"] == "mistake"
    assert agree(customer)
    assert credit_sources([customer.id], valid_at=NOW) == {}
    with pytest.raises(Conflict):
        reverse_grant(actor=OPERATOR, grant_id=grant.id, reason="again", now=NOW)


def test_only_operators_reverse(customer):
    grant = give_credit(customer, 500)
    owner = Actor("user", "user_1", "o@acme.test", "user_1", customer.id, "owner")
    with pytest.raises(NotPermitted):
        reverse_grant(actor=owner, grant_id=grant.id, reason="no", now=NOW)
    with pytest.raises(ObjectNotFound):
        reverse_grant(actor=OPERATOR, grant_id="grant_x", reason="no", now=NOW)
