"""What was paid of invoices follows the ledger: oldest first, once, in any order."""

import copy
from collections.abc import Iterator

import pytest
from django.db import transaction
from pytest_django import DjangoDbBlocker

from billing.credit.models import GrantKind
from billing.credit.selectors import balance_nanos
from billing.credit.services.adjustments import write_off
from billing.invoicing.models import InvoicePayment
from billing.invoicing.selectors import open_invoices, standing
from billing.invoicing.services.disputes import close_dispute, open_dispute
from billing.invoicing.services.notes import left_to_credit
from billing.invoicing.services.settling import apply_payment, settle_invoices
from billing.ledger.causes import DISPUTE, AccountKind
from billing.ledger.post import Leg, post
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from control.permissions import Actor
from tests.fixtures.invoicing import (
    AFTER,
    DECEMBER_1,
    MILLION_CENTS,
    NOVEMBER,
    OCTOBER,
    OPERATOR,
    close,
    credit_note,
    finish_month,
    invoice,
    october,
    pay,
    sound,
    use_cents,
)
from tests.fixtures.kept import kept
from tests.fixtures.organizations import make_organization
from tests.fixtures.usage import Customer, give_credit, make_customer, make_price

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
CENT = 10_000_000


def make_two_invoices() -> Customer:
    """Acme, who owes 10.00 for October and 5.00 for November."""
    customer = make_customer("Acme")
    price = make_price(at=october(1), **MILLION_CENTS)
    use_cents(customer, price, 1000, october(30))
    finish_month()
    close()
    use_cents(customer, price, 500, AFTER)
    finish_month(DECEMBER_1)
    close(DECEMBER_1, NOVEMBER)
    return customer


@pytest.fixture(scope="module")
def months(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Customer]:
    yield from kept(django_db_blocker, make_two_invoices)


@pytest.fixture
def two_invoices(months: Customer, db: None) -> Customer:
    return copy.deepcopy(months)


def left(customer: Customer) -> list[int]:
    return [standing(invoice(customer, month)).open_cents for month in (OCTOBER, NOVEMBER)]


def states(customer: Customer) -> list[str]:
    day = DECEMBER_1.date()
    return [standing(invoice(customer, month)).state(day) for month in (OCTOBER, NOVEMBER)]


def test_a_payment_pays_the_oldest_first_and_becomes_credit_last(two_invoices):
    assert states(two_invoices) == ["overdue", "open"]
    pay(two_invoices, 1200)
    assert left(two_invoices) == [0, 300]
    assert [one.starts_on for one in open_invoices(two_invoices.id)] == [NOVEMBER.starts_on]
    pay(two_invoices, 400, "b")
    assert left(two_invoices) == [0, 0]
    assert states(two_invoices) == ["paid", "paid"]
    assert balance_nanos(two_invoices.id) == 100 * CENT
    assert sound()


def test_a_repeat_of_a_payment_settles_nothing_more(two_invoices):
    payment = pay(two_invoices, 700)
    assert pay(two_invoices, 700).id == payment.id
    apply_payment(organization_id=two_invoices.id, payment_id=payment.id, now=DECEMBER_1)
    settle_invoices(organization_id=two_invoices.id, now=DECEMBER_1)
    assert left(two_invoices) == [300, 500]
    (row,) = InvoicePayment.objects.all()
    assert (row.nanos, row.payment_id, row.cause) == (700 * CENT, payment.id, "payment")


def test_credit_given_and_debts_given_up_settle_too(two_invoices):
    give_credit(two_invoices, 400 * CENT, kind=GrantKind.PROMOTIONAL, now=DECEMBER_1)
    assert left(two_invoices) == [600, 500]
    write_off(
        organization_id=two_invoices.id, amount_nanos=700 * CENT, idempotency_key="w",
        actor=OPERATOR, reason="gone", now=DECEMBER_1,
    )  # fmt: skip
    assert left(two_invoices) == [0, 400]
    assert states(two_invoices) == ["written_off", "open"]
    pay(two_invoices, 400)  # one of November's 5.00 was given up, all that was still asked is paid
    assert states(two_invoices) == ["written_off", "paid"]
    assert sound()


def test_a_payment_that_is_taken_back_opens_the_newest_first(two_invoices):
    pay(two_invoices, 1300)
    with transaction.atomic():
        legs = [
            Leg(AccountKind.ACCOUNTS_RECEIVABLE, 500 * CENT),
            Leg(AccountKind.CASH, -500 * CENT),
        ]
        post(DISPUTE, organization_id=two_invoices.id, legs=legs, key="gone", now=DECEMBER_1)
    settle_invoices(organization_id=two_invoices.id, now=DECEMBER_1)
    assert left(two_invoices) == [200, 500]
    pay(two_invoices, 200, "b")
    assert left(two_invoices) == [0, 500]


def test_a_note_settles_its_own_invoice_before_older_ones(two_invoices):
    note = credit_note(two_invoices, invoice_id=invoice(two_invoices, NOVEMBER).id)
    assert note.total_cents == 500
    assert left(two_invoices) == [1000, 0]
    assert states(two_invoices) == ["overdue", "void"]
    assert sound()


def test_senseless_notes_are_refused_and_change_nothing(two_invoices):
    (line,) = left_to_credit(invoice(two_invoices))
    (other,) = left_to_credit(invoice(two_invoices, NOVEMBER))
    for refused, lines, fields in (
        (Conflict, {line: 1001}, {}),
        (InvalidValue, {line: 0}, {}),
        (InvalidValue, {line: -5}, {}),
        (InvalidValue, {other: 1}, {}),
        (ObjectNotFound, None, {"invoice_id": "inv_nobody"}),
        (InvalidValue, None, {"reason": " "}),
        (InvalidValue, None, {"idempotency_key": ""}),
        (NotPermitted, None, {"actor": Actor.for_user(make_organization("Nobody").owner)}),
    ):
        with pytest.raises(refused):
            credit_note(two_invoices, lines, **fields)
    assert left(two_invoices) == [1000, 500]
    credit_note(two_invoices, {line: 5})
    with pytest.raises(Conflict, match="named an amount"):
        credit_note(two_invoices, {line: 6})
    assert sound()


def test_a_disputed_invoice_is_not_overdue(two_invoices):
    found = invoice(two_invoices)
    for _ in range(2):
        open_dispute(
            invoice_id=found.id, key="dp_1", actor=OPERATOR, reason="not mine", now=DECEMBER_1
        )
    assert states(two_invoices)[0] == "disputed"
    close_dispute(invoice_id=found.id, key="dp_1", actor=OPERATOR, now=DECEMBER_1)
    assert states(two_invoices)[0] == "overdue"
