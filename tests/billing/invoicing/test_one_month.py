"""One month, its close, and what is paid, given back and given up of it: in any order."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from billing.credit.selectors import balance_nanos, owed_nanos
from billing.credit.services.adjustments import write_off
from billing.invoicing.models import TaxRate
from billing.invoicing.selectors import standing
from billing.invoicing.services.notes import left_to_credit
from billing.invoicing.services.settling import settle_invoices
from billing.ledger.causes import AccountKind
from billing.ledger.selectors import balance_nanos as account_nanos
from control.errors import Conflict
from tests.fixtures.invoicing import (
    AFTER,
    DECEMBER_1,
    MILLION_CENTS,
    OPERATOR,
    close,
    credit_note,
    finish_month,
    invoice,
    october,
    pay,
    profile,
    sound,
    use_cents,
)
from tests.fixtures.usage import Customer, give_credit, make_customer, make_price

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
CENT = 10_000_000


@pytest.fixture
def price():
    return make_price(at=october(1), **MILLION_CENTS)


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
