"""Invoices and credit notes as they are stored."""

from datetime import date, datetime
from typing import Any, NamedTuple

import psycopg

CENT = 10**7
INVOICES = """
SELECT id, organization_id, legal_entity_id, sequence, number, starts_on, ends_on, issued_at,
    due_on, usage_nanos, owed_nanos, paid_before_nanos, subtotal_cents, credit_applied_cents,
    net_cents, tax_cents, total_cents, days
FROM invoicing_invoice ORDER BY issued_at, legal_entity_id, sequence
"""
LINES = """
SELECT invoice_id, id, position, model_id, variant_id, tier, price_id, meter, received_on,
    quantity_tokens, unit_price_nanos, amount_nanos, amount_cents
FROM invoicing_invoice_line ORDER BY invoice_id, position
"""
NOTES = """
SELECT id, organization_id, invoice_id, legal_entity_id, sequence, number, idempotency_key,
    net_cents, tax_cents, total_cents, settled_nanos
FROM invoicing_credit_note ORDER BY invoice_id, sequence
"""
NOTE_LINES = "SELECT credit_note_id, line_id, amount_cents FROM invoicing_credit_note_line"
MOVED = """
SELECT coalesce((SELECT sum(total_cents) FROM invoicing_credit_note
        WHERE organization_id = %(owner)s), 0)::bigint * 10000000
    - coalesce((SELECT sum(total_cents * 10000000 - owed_nanos) FROM invoicing_invoice
        WHERE organization_id = %(owner)s), 0)::bigint
"""


class Invoice(NamedTuple):
    """An invoice as it is stored."""

    id: str
    organization_id: str
    entity_id: str
    sequence: int
    number: str
    starts_on: date
    ends_on: date
    issued_at: datetime
    due_on: date
    usage_nanos: int
    owed_nanos: int
    paid_before_nanos: int
    subtotal_cents: int
    credit_applied_cents: int
    net_cents: int
    tax_cents: int
    total_cents: int
    days: Any


class DocumentLine(NamedTuple):
    """A line of one."""

    invoice_id: str
    id: int
    position: int
    model_id: str
    variant_id: str
    tier: str
    price_id: str
    meter: str
    received_on: date
    tokens: int
    unit_nanos: int
    nanos: int
    cents: int


class NoteRow(NamedTuple):
    """A credit note as it is stored."""

    id: str
    organization_id: str
    invoice_id: str
    entity_id: str
    sequence: int
    number: str
    idempotency_key: str
    net_cents: int
    tax_cents: int
    total_cents: int
    settled_nanos: int


class Documents(NamedTuple):
    """All of them."""

    invoices: list[Invoice]
    lines: dict[str, list[DocumentLine]]
    notes: list[NoteRow]
    note_lines: dict[str, dict[int, int]]


def read_documents(monitor: psycopg.Connection) -> Documents:
    """Return all documents."""
    lines: dict[str, list[DocumentLine]] = {}
    for row in monitor.execute(LINES):
        lines.setdefault(row[0], []).append(DocumentLine(*row))
    credited: dict[str, dict[int, int]] = {}
    for note_id, line_id, cents in monitor.execute(NOTE_LINES):
        credited.setdefault(note_id, {})[line_id] = cents
    return Documents(
        [Invoice(*row) for row in monitor.execute(INVOICES)],
        lines,
        [NoteRow(*row) for row in monitor.execute(NOTES)],
        credited,
    )


def documents_nanos(monitor: psycopg.Connection, owner: str) -> int:
    """Return what documents gave an organization's balance: notes less rounding and tax."""
    row = monitor.execute(MOVED, {"owner": owner}).fetchone()
    return int(row[0]) if row else 0


def half_up(part: int, whole: int) -> int:
    """Return a quotient to the whole number, half up."""
    return (2 * part + whole) // (2 * whole)
