"""What was paid of invoices follows the ledger: oldest first, once, in any order."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from billing.credit.models import GrantKind
from billing.credit.selectors import balance_nanos, owed_nanos
from billing.credit.services.adjustments import write_off
from billing.credit.services.payments import record_payment
from billing.invoicing.models import InvoicePayment, TaxRate
from billing.invoicing.selectors import open_invoices, standing
from billing.invoicing.services.disputes import close_dispute, open_dispute
from billing.invoicing.services.notes import issue_credit_note, left_to_credit
from billing.invoicing.services.settling import apply_payment, settle_invoices
from billing.ledger.models import AccountKind, Cause
from billing.ledger.selectors import balance_nanos as account_nanos
from billing.ledger.services import Posting, Side, open_account, post
from control.actor import person
from control.errors import Conflict, Invalid, NotFound, NotPermitted
from serving.contract.ids import new_id
from tests.fixtures.invoicing import (
    AFTER,
    MILLION_CENTS,
    NOVEMBER,
    OCTOBER,
    OPERATOR,
    close,
    finish_month,
    invoice,
    october,
    profile,
    sound,
    use_cents,
)
from tests.fixtures.organizations import make_organization
from tests.fixtures.usage import Customer, give_credit, make_customer, make_price

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
CENT = 10_000_000
DECEMBER_1 = AFTER + timedelta(days=30)


@pytest.fixture
def price():
    return make_price(at=october(1), **MILLION_CENTS)


@pytest.fixture
def two_invoices(customer: Customer, price: Any) -> Customer:
    """Acme, who owes 10.00 for October and 5.00 for November."""
    use_cents(customer, price, 1000, october(30))
    finish_month()
    close()
    use_cents(customer, price, 500, AFTER)
    finish_month(DECEMBER_1)
    close(DECEMBER_1, NOVEMBER)
    return customer


def pay(customer: Customer, cents: int, key: str = "a", now: Any = DECEMBER_1) -> Any:
    return record_payment(
        organization_id=customer.id, amount_nanos=cents * CENT, idempotency_key=key,
        actor=OPERATOR, reason="bank transfer", now=now,
    )  # fmt: skip


def credit_note(customer: Customer, lines: Any = None, key: str = "n", **fields: Any) -> Any:
    values = {
        "invoice_id": invoice(customer).id, "lines": lines, "idempotency_key": key,
        "actor": OPERATOR, "reason": "a mistake", "now": DECEMBER_1, **fields,
    }  # fmt: skip
    return issue_credit_note(**values)


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


def test_a_debt_given_up_before_its_invoice_is_not_paid_by_that(customer, price):
    use_cents(customer, price, 1000, october(30))
    finish_month()
    write_off(
        organization_id=customer.id, amount_nanos=1000 * CENT, idempotency_key="w",
        actor=OPERATOR, reason="gone", now=AFTER,
    )  # fmt: skip
    close()
    assert standing(invoice(customer)).state(AFTER.date()) == "written_off"
    assert sound()


def test_a_payment_that_is_taken_back_opens_the_newest_first(two_invoices):
    pay(two_invoices, 1300)
    with transaction.atomic():
        receivable, cash = (
            open_account(two_invoices.id, kind)
            for kind in (AccountKind.ACCOUNTS_RECEIVABLE, AccountKind.CASH)
        )
        sides = (Side(receivable, 500 * CENT), Side(cash, -500 * CENT))
        post([Posting(new_id(), "gone", Cause.REFUND, two_invoices.id, sides)], now=DECEMBER_1)
    settle_invoices(organization_id=two_invoices.id, now=DECEMBER_1)
    assert left(two_invoices) == [200, 500]
    pay(two_invoices, 200, "b")
    assert left(two_invoices) == [0, 500]


def test_who_paid_before_the_close_owes_the_rest_and_the_document_says_so(customer, price):
    use_cents(customer, price, 1000, october(30))
    finish_month()
    pay(customer, 400, now=AFTER)
    close()
    found = invoice(customer)
    assert (found.total_cents, found.paid_before_nanos) == (1000, 400 * CENT)
    assert standing(found).open_cents == 600
    assert sound()


def test_an_unpaid_invoice_is_void_by_its_credit_note_tax_included(customer, price):
    TaxRate.objects.create(country="DE", name="VAT", rate_basis_points=1900)
    profile(customer, country="DE")
    use_cents(customer, price, 1000, october(30))
    finish_month()
    close()
    note = credit_note(customer)
    assert (note.net_cents, note.tax_cents, note.total_cents) == (1000, 190, 1190)
    assert note.number == "CN-000001"
    assert owed_nanos(customer.id) == balance_nanos(customer.id) == 0
    assert account_nanos(customer.id, AccountKind.TAX_PAYABLE) == 0
    assert standing(invoice(customer)).state(DECEMBER_1.date()) == "void"
    assert credit_note(customer) == note
    with pytest.raises(Conflict, match="Nothing is left"):
        credit_note(customer, key="again")
    assert sound()


def test_a_paid_invoice_taken_back_in_parts_becomes_credit_to_the_cent(customer, price):
    """10.00 and 0.07 of tax at 0.7 %: 3.33, 3.33 and 3.34 give all of it back."""
    TaxRate.objects.create(country="DE", name="VAT", rate_basis_points=70)
    profile(customer, country="DE")
    use_cents(customer, price, 1000, october(30))
    finish_month()
    close()
    pay(customer, 1007)
    (line,) = left_to_credit(invoice(customer))
    for key, cents in (("1", 333), ("2", 333), ("3", 334)):
        credit_note(customer, {line: cents}, key)
    assert balance_nanos(customer.id) == 1007 * CENT
    assert left_to_credit(invoice(customer)) == {line: 0}
    assert account_nanos(customer.id, AccountKind.REVENUE, AccountKind.TAX_PAYABLE) == 0
    assert sound()


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
        (Invalid, {line: 0}, {}),
        (Invalid, {line: -5}, {}),
        (Invalid, {other: 1}, {}),
        (NotFound, None, {"invoice_id": "inv_nobody"}),
        (Invalid, None, {"reason": " "}),
        (Invalid, None, {"idempotency_key": ""}),
        (NotPermitted, None, {"actor": person(make_organization("Nobody").owner)}),
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


STEPS = st.permutations(
    ["pay 300", "pay 900", "grant 200", "pay 700", "close", "settle", "pay 300"]
)


EXAMPLES = 15


@pytest.fixture
def used_ten_dollars(price):
    """Customers who each used 10.00 in October: one for each example."""
    made = [make_customer(f"Customer {number}") for number in range(EXAMPLES)]
    for customer in made:
        use_cents(customer, price, 1000, october(30))
    finish_month()
    return made


@settings(
    max_examples=EXAMPLES, deadline=None, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(steps=STEPS)
def in_any_order(waiting: list[Customer], steps: list[str]) -> None:
    """10.00 used, 21.00 paid or given in parts, one of them twice: the same books at the end."""
    customer = waiting.pop()
    for step in steps:
        do(step, customer)
    settle_invoices(organization_id=customer.id, now=DECEMBER_1)
    assert standing(invoice(customer)).open_nanos == 0
    assert invoice(customer).total_cents == 1000
    assert (owed_nanos(customer.id), balance_nanos(customer.id)) == (0, 1100 * CENT)


def test_payments_and_the_close_come_to_one_state_in_any_order(used_ten_dollars):
    in_any_order(list(used_ten_dollars))
    assert sound()


def do(step: str, customer: Customer) -> None:
    if step == "close":
        close(DECEMBER_1, organization_id=customer.id)
    elif step == "settle":
        settle_invoices(organization_id=customer.id, now=DECEMBER_1)
    elif step.startswith("pay"):
        pay(customer, int(step.split()[1]), step)
    else:
        give_credit(customer, 200 * CENT, now=DECEMBER_1)
