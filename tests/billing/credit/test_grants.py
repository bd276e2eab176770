"""Credit is given once per idempotency key, spent soonest-to-expire first, and expires whole."""

from datetime import timedelta

import pytest

from billing.credit.models import CreditGrant, GrantKind
from billing.credit.selectors import balance, credit_sources, grants
from billing.credit.services.charges import draw
from billing.credit.services.grants import expire_grants
from billing.ledger.models import AccountKind
from billing.ledger.selectors import balance_nanos
from billing.metering.ingest import ingest
from control.actor import Actor, system
from control.audit.models import Entry
from control.errors import Conflict, Invalid, NotPermitted
from control.tenants.signals import organization_created
from tests.support.usage import (
    NOW,
    ask_for,
    broken_promises,
    give_credit,
    make_batch,
    make_event,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
HOUR = timedelta(hours=1)


def test_a_grant_can_be_spent_at_once(customer, outsider):
    give_credit(customer, 500)
    assert balance(customer.organization, NOW) == 500
    assert balance(outsider.organization, NOW) == 0
    assert [grant.remaining_nanos for grant in grants(customer.organization)] == [500]
    assert not grants(outsider.organization)


def test_a_double_submit_grants_once(customer):
    first = give_credit(customer, 500, idempotency_key="form-1")
    again = give_credit(customer, 500, idempotency_key="form-1")
    assert first == again
    assert balance(customer.organization, NOW) == 500
    assert Entry.objects.filter(action="credit.grant").count() == 1


def test_one_key_for_two_different_grants_is_refused(customer):
    give_credit(customer, 500, idempotency_key="form-1")
    with pytest.raises(Conflict, match="500 nanos"):
        give_credit(customer, 501, idempotency_key="form-1")


def test_the_same_key_serves_two_organizations(customer, outsider):
    give_credit(customer, 500, idempotency_key="form-1")
    give_credit(outsider, 700, idempotency_key="form-1")
    assert balance(outsider.organization, NOW) == 700


@pytest.mark.parametrize("change", [{"nanos": 0}, {"nanos": -1}, {"idempotency_key": ""}])
def test_a_senseless_grant_is_refused(customer, change):
    with pytest.raises(Invalid):
        give_credit(customer, **{"nanos": 5} | change)


def test_only_operators_grant(customer):
    owner = Actor("user", "user_1", "o@acme.test", "user_1", customer.id, "owner")
    with pytest.raises(NotPermitted):
        give_credit(customer, 5, actor=owner)


def test_a_new_organization_is_welcomed_once(customer, settings):
    for _ in range(2):
        organization_created.send(
            sender=None, organization=customer.organization, actor=system("tests")
        )
    grant = CreditGrant.objects.get()
    assert (grant.kind, grant.amount_nanos) == ("promotional", 5_000_000_000)
    assert balance_nanos(customer.id, AccountKind.PROMOTION_EXPENSE) == 5_000_000_000


def test_what_expires_first_is_spent_first(customer, price):
    forever = give_credit(customer, 1_000_000)
    later = give_credit(customer, 100_000, expires_at=NOW + 2 * HOUR)
    sooner = give_credit(customer, 50_000, expires_at=NOW + HOUR, kind=GrantKind.PROMOTIONAL)
    ingest(make_batch([make_event(customer, price)]), now=NOW)  # 132,000 nanos
    left = {grant.id: grant.remaining_nanos for grant in grants(customer.organization)}
    assert left == {sooner.id: 0, later.id: 18_000, forever.id: 1_000_000}
    assert broken_promises() == []


def test_usage_beyond_all_credit_is_owed(customer, price):
    give_credit(customer, 100_000)
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    assert balance(customer.organization, NOW) == 100_000 - 132_000
    assert credit_sources([customer.id]) == {}


def test_drawing_takes_no_more_than_there_is():
    assert draw(70, []) == ([], 70)


def test_an_expired_grant_counts_no_more_even_before_the_task_ran(customer):
    give_credit(customer, 500, expires_at=NOW + HOUR)
    assert balance(customer.organization, NOW) == 500
    assert balance(customer.organization, NOW + HOUR) == 0


@pytest.mark.parametrize(
    ("kind", "goes_to"),
    [
        (GrantKind.PROMOTIONAL, AccountKind.PROMOTION_EXPENSE),
        (GrantKind.PREPAID, AccountKind.BREAKAGE),
    ],
)
def test_expiry_takes_what_is_left_once(customer, kind, goes_to):
    give_credit(customer, 500, kind=kind, expires_at=NOW + HOUR)
    before = balance_nanos(customer.id, goes_to)
    assert expire_grants(now=NOW + HOUR) == 1
    assert expire_grants(now=NOW + HOUR) == 0
    assert balance_nanos(customer.id, goes_to) - before == -500
    assert broken_promises() == []


def test_expiry_leaves_what_a_lease_may_still_spend(customer, price):
    give_credit(customer, 200_000, expires_at=NOW + HOUR)
    ask_for(customer.id, 132_000)
    assert expire_grants(now=NOW + HOUR) == 0
    ingest(make_batch([make_event(customer, price)]), now=NOW + HOUR)
    assert grants(customer.organization)[0].remaining_nanos == 68_000
