"""Faults planted past all triggers: every check of the invoices finds its own."""

import pytest

from billing.invoicing.integrity import CHECKS
from billing.invoicing.services.notes import issue_credit_note
from billing.ledger.integrity import run
from tests.fixtures.invoicing import AFTER, OPERATOR, sound

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

FAULTS = [
    ("UPDATE invoicing_invoice_line SET amount_nanos = amount_nanos + 1", "Every invoice is"),
    ("UPDATE invoicing_invoice_line SET amount_cents = amount_cents + 1", "Every invoice is"),
    ("DELETE FROM invoicing_invoice_line", "Every invoice is"),
    ("UPDATE invoicing_invoice SET usage_nanos = usage_nanos + 1", "Every invoice charges"),
    ("UPDATE invoicing_invoice SET owed_nanos = owed_nanos - 1", "Every invoice charges"),
    (
        "UPDATE invoicing_invoice SET tax_cents = tax_cents + 1, total_cents = total_cents + 1",
        "Invoices with what is not invoiced",
    ),
    ("DELETE FROM invoicing_invoice", "Documents are numbered"),
    (
        "UPDATE ledger_account SET balance_nanos = balance_nanos + 1"
        " WHERE kind = 'accounts_receivable'",
        "Invoices with what is not invoiced",
    ),
    ("UPDATE invoicing_invoice_payment SET nanos = 10^12", "No invoice is settled beyond"),
    ("UPDATE invoicing_invoice_payment SET nanos = -1", "No invoice is settled beyond"),
    ("UPDATE invoicing_invoice_payment SET nanos = nanos + 1", "Nothing is allotted"),
    ("UPDATE invoicing_invoice SET sequence = 7", "Documents are numbered"),
    ("UPDATE invoicing_legal_entity SET next_credit_note = 9", "Documents are numbered"),
    ("UPDATE invoicing_credit_note_line SET amount_cents = 1001", "No credit note takes back"),
]


@pytest.fixture
def corrected(invoiced):
    """An invoice of 10.00, of which 4.00 were taken back."""
    line = invoiced.lines.get()
    issue_credit_note(
        invoice_id=invoiced.id, lines={line.pk: 400}, idempotency_key="1", actor=OPERATOR,
        reason="a mistake", now=AFTER,
    )  # fmt: skip
    assert sound()
    return invoiced


@pytest.mark.parametrize(("statement", "sentence"), FAULTS)
def test_a_planted_fault_is_named(corrected, superuser_connection, statement, sentence):
    superuser_connection.execute(statement)
    failed = [check.sentence for check in CHECKS if not run(check).holds]
    assert any(one.startswith(sentence) for one in failed)


def test_every_check_has_a_fault_that_it_finds():
    sentences = [check.sentence for check in CHECKS]
    assert [one for one in sentences if not any(one.startswith(name) for _, name in FAULTS)] == []
