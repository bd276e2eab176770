"""Money that comes in, and what an operator puts right: each once per organization and key."""

from datetime import timedelta
from typing import Any

import pytest

from billing.credit.models import GrantKind, Payment
from billing.credit.selectors import balance_nanos, owed_nanos
from billing.credit.services.adjustments import issue_credit_note, refund, write_off
from billing.credit.services.grants import expire_grants, reverse_grant
from billing.credit.services.payments import record_payment
from billing.ledger.causes import AccountKind
from billing.ledger.selectors import balance_nanos as account_nanos
from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from control.permissions import Actor
from tests.fixtures.spending import agree, charge_to, remaining, settle, use
from tests.fixtures.usage import NOW, Customer, ask_for, give_credit

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
OPERATOR = Actor.for_system("tests")
VERBS = [record_payment, refund, write_off, issue_credit_note]


def do(verb: Any, customer: Customer, nanos: int, key: str = "form-1", **fields: Any) -> Any:
    values = {
        "organization_id": customer.id,
        "amount_nanos": nanos,
        "idempotency_key": key,
        "actor": OPERATOR,
        "reason": "test",
        "now": NOW,
        **fields,
    }
    return verb(**values)


def in_debt(customer: Customer, nanos: int) -> Customer:
    """Return the customer owing so much, all of it posted."""
    give_credit(customer, 1)
    use(customer, nanos + 1)
    settle(customer)
    assert owed_nanos(customer.id) == nanos
    return customer


def figures(customer: Customer, *kinds: AccountKind) -> list[int]:
    return [account_nanos(customer.id, kind) for kind in kinds]


def test_a_payment_settles_the_debt_before_it_becomes_credit(customer):
    """119 with 19 of tax, 40 owed: 40 settle, 60 are credit; the balance goes from -40 to 60."""
    in_debt(customer, 40)
    payment = do(record_payment, customer, 119, tax_nanos=19)
    assert (payment.settled_nanos, payment.grant.amount_nanos) == (40, 60)
    assert payment.grant.kind == GrantKind.PREPAID
    assert (owed_nanos(customer.id), balance_nanos(customer.id)) == (0, 60)
    # cash: 1 of the grant before, and 119
    assert figures(customer, AccountKind.CASH, AccountKind.TAX_PAYABLE) == [120, -19]
    assert agree(customer)


def test_a_payment_below_the_debt_makes_no_credit(customer):
    in_debt(customer, 40)
    payment = do(record_payment, customer, 30)
    assert (payment.settled_nanos, payment.grant) == (30, None)
    assert balance_nanos(customer.id) == -10
    assert agree(customer)


def test_tax_is_never_credit(customer):
    payment = do(record_payment, customer, 100, tax_nanos=99)
    assert payment.grant.amount_nanos == balance_nanos(customer.id) == 1
    for tax in (100, -1):
        with pytest.raises(InvalidValue):
            do(record_payment, customer, 100, "other", tax_nanos=tax)


def test_usage_on_its_way_into_the_ledger_meets_the_credit_of_a_payment(customer):
    """40 are charged and not followed, so nothing is owed yet: all 100 are credit, and 60 is the
    balance."""
    give_credit(customer, 1)
    charge_to(customer, 41)
    payment = do(record_payment, customer, 100)
    assert (payment.settled_nanos, balance_nanos(customer.id)) == (0, 60)


def test_a_refund_pays_back_the_last_credit_to_be_drawn(customer):
    """100 expire in an hour, 100 never, 50 are a favour: 120 = 100 of the last, 20 of the first."""
    hour = give_credit(customer, 100, expires_at=NOW + timedelta(hours=1))
    never = give_credit(customer, 100)
    give_credit(customer, 50, kind=GrantKind.PROMOTIONAL)
    do(refund, customer, 120)
    assert remaining(hour, never) == [80, 0]
    assert balance_nanos(customer.id) == 130
    assert agree(customer)
    with pytest.raises(Conflict, match=r"\$0\.00000008 can be refunded"):
        do(refund, customer, 81, "form-2")


def test_what_gateways_hold_is_not_refunded(customer):
    give_credit(customer, 100)
    ask_for(customer.balance, 70)
    with pytest.raises(Conflict):
        do(refund, customer, 31)
    do(refund, customer, 30)
    assert balance_nanos(customer.id) == 70


def test_what_was_used_and_is_not_posted_is_not_refunded(customer):
    give_credit(customer, 100)
    charge_to(customer, 70)
    with pytest.raises(Conflict):
        do(refund, customer, 31)


def test_favours_and_expired_credit_are_not_refunded(customer):
    give_credit(customer, 100, kind=GrantKind.PROMOTIONAL)
    give_credit(customer, 100, expires_at=NOW)
    with pytest.raises(Conflict):
        do(refund, customer, 1)
    expire_grants(now=NOW)


def test_a_debt_is_written_off_as_far_as_it_goes(customer):
    in_debt(customer, 40)
    with pytest.raises(Conflict):
        do(write_off, customer, 41)
    do(write_off, customer, 40)
    assert (owed_nanos(customer.id), balance_nanos(customer.id)) == (0, 0)
    assert figures(customer, AccountKind.BAD_DEBT) == [40]
    assert agree(customer)


def test_a_credit_note_settles_debt_and_gives_the_rest(customer):
    """51 were charged and 20 are owed: 50 given back settle 20 and grant 30."""
    give_credit(customer, 31)
    use(customer, 51)
    settle(customer)
    note = do(issue_credit_note, customer, 50)
    assert (note.settled_nanos, note.grant.amount_nanos) == (20, 30)
    assert (owed_nanos(customer.id), balance_nanos(customer.id)) == (0, 30)
    assert figures(customer, AccountKind.REVENUE) == [-1]
    assert agree(customer)
    with pytest.raises(Conflict, match="was charged"):
        do(issue_credit_note, customer, 2, "form-2")


def test_a_credit_notes_grant_goes_back_to_revenue(customer):
    give_credit(customer, 51)
    use(customer, 51)
    note = do(issue_credit_note, customer, 50)
    reverse_grant(actor=OPERATOR, grant_id=note.grant.id, reason="mistake", now=NOW)
    assert figures(customer, AccountKind.REVENUE) == [-51]
    assert agree(customer)


@pytest.fixture
def busy(customer):
    """A customer to whom each verb can be done: 20 are owed, 100 of credit came after."""
    give_credit(customer, 200)
    use(customer, 100)
    settle(customer)
    return customer


def owe(customer: Customer) -> None:
    """Spend all and 20 more."""
    use(customer, balance_nanos(customer.id) + 20)
    settle(customer)


@pytest.mark.parametrize("verb", VERBS)
def test_a_repeat_does_nothing_and_another_amount_is_refused(busy, outsider, verb):
    if verb is write_off:
        owe(busy)
    first = do(verb, busy, 10)
    balance = balance_nanos(busy.id)
    assert do(verb, busy, 10) == first
    assert balance_nanos(busy.id) == balance
    with pytest.raises(Conflict, match="10 nanos"):
        do(verb, busy, 11)
    assert AuditEvent.objects.exclude(action="credit.grant").count() == 1
    assert agree(busy)


@pytest.mark.parametrize("verb", VERBS)
def test_only_operators_put_things_right(busy, verb):
    owner = Actor("user", "user_1", "o@acme.test", "user_1", busy.id, "owner")
    with pytest.raises(NotPermitted):
        do(verb, busy, 10, actor=owner)


@pytest.mark.parametrize("verb", VERBS)
def test_nonsense_is_refused(busy, verb):
    for change in ({"amount_nanos": 0}, {"amount_nanos": -5}, {"idempotency_key": ""}):
        with pytest.raises(InvalidValue):
            do(verb, busy, 10, **change)
    with pytest.raises(ObjectNotFound):
        do(verb, busy, 10, organization_id="org_nowhere")


def test_a_payment_is_a_fact(customer, outsider):
    do(record_payment, customer, 10)
    do(record_payment, outsider, 20)
    assert Payment.objects.get(organization_id=outsider.id).amount_nanos == 20
    assert balance_nanos(customer.id) == 10
