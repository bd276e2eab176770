"""What a cause may touch of the books, and nothing else."""

from collections import Counter
from datetime import UTC, date, datetime

import pytest

from tests.simulation.audit_books import sides_of
from tests.simulation.books import Books, Grant, Movement

AT = datetime(2026, 3, 31, 12, tzinfo=UTC)
NOTES = {"credit-note:note_1"}
GRANT, NOTE_GRANT = 1, 2
"""Accounts of grants: of revenue that an operator gave back, and of a credit note."""


def grant(account: int, key: str) -> Grant:
    return Grant(f"grant_{account}", "org_1", "prepaid", 5, account, None, 0, None, None, AT, key)


BOOKS = Books(
    [], {GRANT: grant(GRANT, "credit-note:k"), NOTE_GRANT: grant(NOTE_GRANT, "credit-note:note_1")}
)


def correction(source: str, account: int = 9) -> Movement:
    return Movement(
        "correction", source, "org_1", date(2026, 3, 31), AT, by_account=Counter({account: -5})
    )


@pytest.mark.parametrize(
    ("one", "debits", "credits"),
    [
        (correction("credit-note:org_1:k"), {"revenue"}, {"customer_balance"}),
        (correction("grant:grant_1", GRANT), {"revenue"}, {"customer_balance"}),
        (correction("credit-note:note_1"), {"revenue", "tax_payable", "rounding"}, {"rounding"}),
        (correction("grant:grant_2", NOTE_GRANT), {"accounts_receivable"}, {"customer_balance"}),
    ],
)
def test_a_correction_touches_only_what_its_document_is_about(one, debits, credits):
    owed = set() if one.source == "grant:grant_2" else {"accounts_receivable"}
    debited, credited = sides_of(one, BOOKS, NOTES)
    assert set(debited) == debits
    assert set(credited) == credits | owed


def test_what_draws_a_notes_credit_is_no_correction():
    used = Movement("usage", "u", "org_1", date(2026, 3, 31), AT, by_account=Counter({2: 5}))
    assert sides_of(used, BOOKS, NOTES)[1] == ("revenue",)
