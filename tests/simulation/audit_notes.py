"""The proof of credit notes once all is at rest: each takes back what was asked for, once, and its
share of the tax, and what was paid of it is credit."""

from collections import Counter, defaultdict

import psycopg

from tests.simulation.books import Books, read_books
from tests.simulation.cast import Cast
from tests.simulation.documents import CENT, Documents, NoteRow, half_up, read_documents
from tests.simulation.oracle import require

OWED = "accounts_receivable"


def audit_notes(monitor: psycopg.Connection, cast: Cast) -> None:
    """Raises BrokenError on the first promise that does not hold."""
    books, documents = read_books(monitor), read_documents(monitor)
    _check_asked(cast, documents)
    taken: Counter[int] = Counter()
    net: dict[str, int] = defaultdict(int)
    for note in documents.notes:
        revenue = _take(note, documents, taken)
        _check_tax(note, documents, before=net[note.invoice_id])
        net[note.invoice_id] += note.net_cents
        _check_posted(note, books, revenue)


def _check_asked(cast: Cast, documents: Documents) -> None:
    made = Counter((one.organization_id, one.idempotency_key) for one in documents.notes)
    twice = [key for key, count in made.items() if count > 1]
    require(not twice, "A note is made once", twice)
    for note in documents.notes:
        wish = cast.notes[note.idempotency_key]
        is_its = (wish.organization_id, wish.invoice_id) == (note.organization_id, note.invoice_id)
        credited = documents.note_lines[note.id]
        is_as_asked = wish.lines is None or wish.lines == credited
        require(is_its and is_as_asked, "A note is as it was asked for", note, wish, credited)
        total = sum(credited.values())
        require(note.net_cents == total > 0, "A note is the sum of its lines", note, total)


def _take(note: NoteRow, documents: Documents, taken: Counter[int]) -> int:
    """Return the nanos of revenue that a note takes back, in the order of notes."""
    lines = {line.id: line for line in documents.lines[note.invoice_id]}
    nanos = 0
    for line_id, cents in documents.note_lines[note.id].items():
        line, before = lines[line_id], taken[line_id]
        after = before + cents
        require(after <= line.cents, "No line is taken back twice", note, line, after)
        nanos += half_up(line.nanos * after, line.cents) - half_up(line.nanos * before, line.cents)
        taken[line_id] = after
    return nanos


def _check_tax(note: NoteRow, documents: Documents, *, before: int) -> None:
    """What was due of an invoice is taken back first, with its tax."""
    invoice = next(one for one in documents.invoices if one.id == note.invoice_id)
    shares = [
        half_up(invoice.tax_cents * min(net, invoice.net_cents), invoice.net_cents)
        if invoice.net_cents
        else 0
        for net in (before, before + note.net_cents)
    ]
    tax = shares[1] - shares[0]
    shown = (note.tax_cents, note.total_cents)
    require(shown == (tax, note.net_cents + tax), "A note takes its tax back", note, tax)


def _check_posted(note: NoteRow, books: Books, revenue: int) -> None:
    total = note.total_cents * CENT
    mine = [one for one in books.movements if one.source == f"credit-note:{note.id}"]
    wanted = {
        "revenue": revenue,
        "rounding": note.net_cents * CENT - revenue,
        "tax_payable": note.tax_cents * CENT,
        OWED: -total,
    }
    posted = [{kind: nanos for kind, nanos in one.by_kind.items() if nanos} for one in mine]
    asked = [{kind: nanos for kind, nanos in wanted.items() if nanos}]
    require(posted == asked, "A note is posted once", note, posted, asked)
    key = f"credit-note:{note.id}"
    granted = sum(one.amount_nanos for one in books.grants.values() if one.idempotency_key == key)
    is_whole = note.settled_nanos + granted == total
    require(is_whole, "What was paid of it becomes credit", note, granted)
