"""The proof of invoices once all is at rest: from journals, the ledger's entries and plain
arithmetic. Each month of each organization is invoiced once, to the token and the nano."""

from collections import Counter, defaultdict
from datetime import date, timedelta

import psycopg

from tests.simulation.audit import Auditor
from tests.simulation.books import Books, read_books
from tests.simulation.cast import Cast
from tests.simulation.documents import (
    CENT,
    DocumentLine,
    Documents,
    Invoice,
    half_up,
    read_documents,
)
from tests.simulation.oracle import received_at, require
from tests.simulation.parties import RECIPIENTS

METERS = ("input", "cached_input", "output")
OWED = "accounts_receivable"
CLOSED = "SELECT starts_on FROM invoicing_close WHERE finished_at IS NOT NULL"
FAILURES = "SELECT organization_id, reason FROM invoicing_close_failure"
SETTLED = """
SELECT invoice_id, organization_id, sum(nanos)::bigint, min(cause)
FROM invoicing_invoice_payment GROUP BY 1, 2
"""
STRAY = """
SELECT one.id FROM invoicing_invoice_payment AS one LEFT JOIN credit_payment AS payment
    ON payment.id = payment_id AND payment.organization_id = one.organization_id
WHERE payment_id <> '' AND payment.id IS NULL
"""
MAILS = "SELECT split_part(key, ':', 2), count(*) FROM outbox_message WHERE key LIKE %s GROUP BY 1"
DISPUTES = "SELECT invoice_id, key FROM invoicing_dispute"
NEXT = "SELECT id, next_invoice, next_credit_note FROM invoicing_legal_entity"

Sold = dict[tuple[str, date], dict[tuple[object, ...], list[int]]]
"""By organization and month, and by what stands on a line: tokens and nanos."""


def audit_invoices(monitor: psycopg.Connection, cast: Cast, auditor: Auditor) -> None:
    """Raises BrokenError on the first promise that does not hold."""
    books, documents = read_books(monitor), read_documents(monitor)
    sold, days = _sold(auditor)
    _check_months(monitor, documents, sold)
    for invoice in documents.invoices:
        found = sold[invoice.organization_id, invoice.starts_on]
        _check_lines(invoice, documents.lines[invoice.id], found, auditor)
        _check_days(invoice, days)
        _check_sums(cast, invoice, documents.lines[invoice.id], books)
        _check_postings(invoice, books)
    _check_numbers(monitor, documents)
    _check_standing(monitor, documents, books)
    _check_told(monitor, cast, documents)


def _sold(auditor: Auditor) -> tuple[Sold, Counter[tuple[str, date, str]]]:
    """Return what was sold by what stands on a line, and the charges of each day by meter."""
    sold: Sold = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    days: Counter[tuple[str, date, str]] = Counter()
    for usage, event, _ in auditor.events:
        received = received_at(event.event_id).date().replace(day=1)
        for sign, day, fact in usage.counted:
            if fact.is_waived:
                continue
            month = day.replace(day=1)
            tokens = (
                fact.input_tokens - fact.cached_input_tokens, fact.cached_input_tokens,
                fact.output_tokens,
            )  # fmt: skip
            nanos = (fact.input_nanos, fact.cached_input_nanos, fact.output_nanos)
            for meter, count, amount in zip(METERS, tokens, nanos, strict=True):
                key = (
                    fact.model_id, fact.variant_id, fact.tier, fact.price_id, meter,
                    min(received, month),
                )  # fmt: skip
                line = sold[fact.organization_id, month][key]
                line[0] += sign * count
                line[1] += sign * amount
                days[fact.organization_id, day, meter] += sign * amount
    return sold, days


def _check_months(monitor: psycopg.Connection, documents: Documents, sold: Sold) -> None:
    """Whoever was charged in a month that was closed has one invoice of it; nobody else has."""
    closed = {row[0] for row in monitor.execute(CLOSED)}
    failed = monitor.execute(FAILURES).fetchall()
    require(not failed, "In the end nobody's month failed", failed)
    made = Counter((one.organization_id, one.starts_on) for one in documents.invoices)
    charged = {key for key, lines in sold.items() if sum(nanos for _, nanos in lines.values())}
    wanted = Counter(key for key in charged if key[1] in closed)
    require(made == wanted, "Every month is invoiced once", made, wanted)


def _check_lines(
    invoice: Invoice, lines: list[DocumentLine], found: dict[tuple[object, ...], list[int]],
    auditor: Auditor,
) -> None:  # fmt: skip
    wanted = {key: tuple(line) for key, line in found.items() if line[1]}
    made = {
        (one.model_id, one.variant_id, one.tier, one.price_id, one.meter, one.received_on):
        (one.tokens, one.nanos)
        for one in lines
    }  # fmt: skip
    require(made == wanted, "Lines are what was used", invoice, made, wanted)
    require(len(made) == len(lines), "Nothing stands on two lines", invoice)
    places = [one.position for one in lines]
    require(places == [*range(1, len(lines) + 1)], "Lines have their places", invoice, places)
    tariffs = {one.price_id: one for one in auditor.world.tariffs}
    for line in lines:
        price = getattr(tariffs[line.price_id], f"{line.meter}_nanos")
        require(line.unit_nanos == price, "A line shows its price", invoice, line, price)
        cents = half_up(line.nanos, CENT)
        require(line.cents == cents, "A line is rounded once", invoice, line, cents)


def _check_days(invoice: Invoice, days: Counter[tuple[str, date, str]]) -> None:
    for number, shown in enumerate(invoice.days):
        day = invoice.starts_on + timedelta(days=number)
        used = [days[invoice.organization_id, day, meter] for meter in METERS]
        require(shown == used, "An invoice shows its days", invoice.number, day, shown, used)
    require(len(invoice.days) == (invoice.ends_on - invoice.starts_on).days, "All of them")


def _check_sums(cast: Cast, invoice: Invoice, lines: list[DocumentLine], books: Books) -> None:
    """What no credit met is due, with the tax of where the customer is."""
    owner = invoice.organization_id
    owed = sum(
        one.by_kind[OWED]
        for one in books.movements
        if one.cause == "usage" and one.organization_id == owner
        and invoice.starts_on <= one.accounted_on < invoice.ends_on
    )  # fmt: skip
    used, subtotal = sum(one.nanos for one in lines), sum(one.cents for one in lines)
    credit = subtotal if owed == 0 else min(subtotal, half_up(used - owed, CENT))
    net = subtotal - credit
    tax = half_up(net * cast.world.tax_rates[owner], 10_000)
    wanted = (used, owed, subtotal, credit, net, tax, net + tax)
    shown = (
        invoice.usage_nanos, invoice.owed_nanos, invoice.subtotal_cents,
        invoice.credit_applied_cents, invoice.net_cents, invoice.tax_cents, invoice.total_cents,
    )  # fmt: skip
    require(shown == wanted, "An invoice adds up", invoice, wanted)


def _check_postings(invoice: Invoice, books: Books) -> None:
    """Finalizing posts what rounding and tax add to the receivable, once, that day."""
    wanted = {
        "rounding": invoice.net_cents * CENT - invoice.owed_nanos,
        "tax": invoice.tax_cents * CENT,
    }
    for cause, nanos in wanted.items():
        mine = [one for one in books.movements if one.source == f"{cause}:invoice:{invoice.id}"]
        posted = [one.by_kind[OWED] for one in mine]
        require(posted == ([nanos] if nanos else []), "Rounding and tax are posted once",
                invoice, cause, posted, nanos)  # fmt: skip
        is_now = all(one.posted_at == invoice.issued_at for one in mine)
        require(is_now, "They are posted with their invoice", invoice, mine)


def _check_numbers(monitor: psycopg.Connection, documents: Documents) -> None:
    """Numbers have no gaps, by who sells, and rise with time."""
    for entity, next_invoice, next_note in monitor.execute(NEXT).fetchall():
        mine = [one for one in documents.invoices if one.entity_id == entity]
        given = [one.sequence for one in mine]
        require(given == [*range(1, next_invoice)], "Numbers have no gaps", entity, given)
        notes = sorted(one.sequence for one in documents.notes if one.entity_id == entity)
        require(notes == [*range(1, next_note)], "Notes' numbers have no gaps", entity, notes)
        names = [one.number for one in mine]
        is_told = all(name.endswith(f"-{n:06}") for name, n in zip(names, given, strict=True))
        require(is_told, "A number is told", names)


def _check_standing(monitor: psycopg.Connection, documents: Documents, books: Books) -> None:
    """Invoices and what is not invoiced yet are what the ledger says is owed, to the nano."""
    rows = monitor.execute(SETTLED).fetchall()
    settled = {row[0]: row[2] for row in rows}
    stray = monitor.execute(STRAY).fetchall()
    require(not stray, "An invoice is settled by its own customer's payments", stray)
    for invoice in documents.invoices:
        nanos = settled.get(invoice.id, 0)
        is_inside = 0 <= nanos <= invoice.total_cents * CENT
        require(is_inside, "No invoice is settled beyond its total", invoice, nanos)
    invoiced = {(one.organization_id, one.starts_on) for one in documents.invoices}
    for owner in {one.organization_id for one in books.movements}:
        mine = [one for one in books.movements if one.organization_id == owner]
        receivable = sum(one.by_kind[OWED] for one in mine)
        unbilled = sum(
            one.by_kind[OWED] for one in mine
            if one.cause == "usage" and (owner, one.accounted_on.replace(day=1)) not in invoiced
        )  # fmt: skip
        lowered = -sum(
            one.by_kind[OWED] for one in mine if one.cause not in ("usage", "rounding", "tax")
        )
        totals = sum(
            one.total_cents * CENT for one in documents.invoices if one.organization_id == owner
        )
        is_same = receivable == totals + unbilled - lowered
        require(is_same, "Invoices and the unbilled are what is owed", owner, receivable, totals)
        allotted = sum(row[2] for row in rows if row[1] == owner)
        due = max(min(lowered, totals), 0)
        require(allotted == due, "Invoices are settled by what was paid", owner, allotted, due)


def _check_told(monitor: psycopg.Connection, cast: Cast, documents: Documents) -> None:
    """Each invoice is told once to each who wants to know, and so is each note."""
    ids = {"invoice": {one.id for one in documents.invoices},
           "credit_note": {one.id for one in documents.notes}}  # fmt: skip
    for template, wanted in ids.items():
        told: dict[str, int] = dict(monitor.execute(MAILS, [f"{template}:%"]).fetchall())
        once = dict.fromkeys(wanted, len(RECIPIENTS))
        require(told == once, "Each document is told once", template, told)
    disputed = {(row[0], row[1]) for row in monitor.execute(DISPUTES)}
    unasked = disputed - cast.disputes
    require(not unasked, "Nothing is disputed that nobody disputed", unasked)
