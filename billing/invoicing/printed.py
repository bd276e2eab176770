"""What a document shows, as text: the one description that the page and the PDF are made from.

It is made of a final row alone, so it is the same whenever it is made.
"""

import unicodedata
from collections.abc import Iterable
from datetime import date
from itertools import groupby
from typing import Any

from billing.invoicing.models import CreditNote, Invoice, InvoiceLine
from billing.invoicing.periods import Period
from serving.contract.money import CENT_NANOS, exact_dollars, format_dollars

TEXT_MAX = 300
MILLION = 1_000_000
WITHOUT_DECIMALS = frozenset(
    "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split()  # noqa: SIM905
)
THREE_DECIMALS = frozenset("BHD IQD JOD KWD LYD OMR TND".split())  # noqa: SIM905
"""Currencies that are not told with two decimals (ISO 4217)."""
BIDI = frozenset("LRE RLE LRO RLO PDF LRI RLI FSI PDI".split())  # noqa: SIM905 -- as Unicode does
METER_WORDS = {
    "input": "Uncached input tokens",
    "cached_input": "Cached input tokens",
    "output": "Output tokens",
}


def invoice_printed(invoice: Invoice, *, with_label: str = "") -> dict[str, Any]:
    """Return an invoice as it is printed; `with_label` marks what is none, such as a draft."""
    due = invoice.due_cents
    return clean(
        {
            "kind": "Invoice",
            "label": with_label,
            "number": invoice.number,
            "paper": invoice.paper,
            "seller": invoice.seller,
            "buyer": invoice.buyer,
            "facts": _facts(invoice),
            "headline": f"{dollars(due)} due {day(invoice.due_on)}" if due else "Nothing to pay",
            "subline": invoice.period.words,
            "days": invoice.days,
            "groups": line_groups(invoice.lines.all(), invoice.period),
            "totals": invoice_totals(invoice),
            "notes": _notes(invoice),
            "bank_details": invoice.seller["bank_details"] if due else [],
            "reference": invoice.number,
            "issued_on": invoice.issued_at.date().isoformat(),
        }
    )


def credit_note_printed(note: CreditNote) -> dict[str, Any]:
    """Return a credit note as it is printed."""
    invoice = note.invoice
    return clean(
        {
            "kind": "Credit note",
            "label": "",
            "number": note.number,
            "paper": invoice.paper,
            "seller": invoice.seller,
            "buyer": invoice.buyer,
            "facts": [
                ["Issued", day(note.issued_at.date())],
                ["Corrects invoice", invoice.number],
                ["Period", invoice.period.words],
                ["Reason", note.reason],
            ],
            "headline": f"{dollars(note.total_cents)} credited",
            "subline": f"of invoice {invoice.number}",
            "days": [],
            "groups": _credited(note),
            "totals": credit_note_totals(note),
            "notes": [credited_to(note)],
            "bank_details": [],
            "reference": note.number,
            "issued_on": note.issued_at.date().isoformat(),
        }
    )


def invoice_totals(invoice: Invoice) -> list[list[str]]:
    """Return the rows from the subtotal to the amount due: name, amount, style."""
    totals = [["Subtotal", dollars(invoice.subtotal_cents), ""]]
    if invoice.credit_applied_cents:
        totals.append(["Credit applied", dollars(-invoice.credit_applied_cents), ""])
    if invoice.tax_cents or invoice.tax.get("is_reverse_charge"):
        totals.append([tax_words(invoice.tax), dollars(invoice.tax_cents), ""])
    totals.append(["Total", dollars(invoice.total_cents), "strong"])
    if paid := invoice.total_cents - invoice.due_cents:
        totals.append(["Paid before issue", dollars(-paid), ""])
    totals.append(["Amount due", dollars(invoice.due_cents), "due"])
    return totals


def credit_note_totals(note: CreditNote) -> list[list[str]]:
    """Return the rows from the subtotal to the amount credited: name, amount, style."""
    totals = [["Subtotal", dollars(note.net_cents), ""]]
    if note.tax_cents:
        totals.append([tax_words(note.invoice.tax), dollars(note.tax_cents), ""])
    return [*totals, ["Credited", dollars(note.total_cents), "strong"]]


def credited_to(note: CreditNote) -> str:
    """Return what became of the amount credited, in a sentence."""
    credit = note.total_cents * CENT_NANOS - note.settled_nanos
    settled = f"{format_dollars(note.settled_nanos)} was deducted from the amount you owe"
    if credit and note.settled_nanos:
        return f"{settled}, and {format_dollars(credit)} was added to your balance."
    return f"{format_dollars(credit)} was added to your balance." if credit else f"{settled}."


def line_groups(lines: Iterable[InvoiceLine], period: Period) -> list[dict[str, Any]]:
    """Return lines by variant and tier, late usage apart and last, each with its words."""
    found = []
    in_order = sorted(lines, key=lambda line: line.position)
    for (received_on, variant, tier), of_group in groupby(
        in_order, key=lambda line: (line.received_on, line.variant_name, line.tier)
    ):
        late = received_on < period.starts_on
        note = f"Received in {received_on:%B %Y}, after that month was closed" if late else ""
        rows = [_row(line) for line in of_group]
        found.append({"title": variant, "tier": tier_words(tier), "note": note, "rows": rows})
    return found


def tier_words(tier: str) -> str:
    """Return what follows a variant's name: nothing for the default tier."""
    return "" if tier == "default" else f"{tier} tier"


def tax_words(tax: dict[str, Any]) -> str:
    """Return such as `VAT 19 %`."""
    name, rate = tax.get("name") or "Tax", tax.get("rate_basis_points", 0)
    if tax.get("is_reverse_charge"):
        return f"{name}, reverse charge"
    return f"{name} {percent(rate)}"


def percent(basis_points: int) -> str:
    """Return such as `19 %` or `8.88 %`."""
    whole, part = divmod(basis_points, 100)
    decimals = f".{part:02}".rstrip("0").rstrip(".")
    return f"{whole}{decimals} %"


def dollars(amount_cents: int) -> str:
    """Return whole cents with two decimals, always: `$0.00`, `-$3.50`, `$1,234.56`."""
    whole, part = divmod(abs(amount_cents), 100)
    return f"{'-' if amount_cents < 0 else ''}${whole:,}.{part:02}"


def day(when: date) -> str:
    """Return such as `1 November 2026`."""
    return f"{when.day} {when:%B %Y}"


def clean(value: Any) -> Any:
    """Return the same with every text made harmless: one line, no control characters, none that
    turns the direction of what follows, and no longer than a page can hold."""
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, list):
        return [clean(each) for each in value]
    if isinstance(value, dict):
        return {name: each if name == "logo_svg" else clean(each) for name, each in value.items()}
    return value


def _clean_text(text: str) -> str:
    kept = "".join(
        one
        for one in text[: 4 * TEXT_MAX]
        if unicodedata.category(one) not in {"Cc", "Cs", "Co", "Cn", "Zl", "Zp"}
        and unicodedata.bidirectional(one) not in BIDI
    )
    return kept if len(kept) <= TEXT_MAX else kept[: TEXT_MAX - 1] + "…"


def _facts(invoice: Invoice) -> list[list[str]]:
    facts = [
        ["Issued", day(invoice.issued_at.date())],
        ["Due", day(invoice.due_on)],
        ["Period", f"1 to {day(invoice.period.last_day)}, UTC"],
    ]
    if invoice.purchase_order:
        facts.append(["Purchase order", invoice.purchase_order])
    return facts


def _row(line: InvoiceLine) -> dict[str, str]:
    words = METER_WORDS[line.meter]
    if line.input_tokens_min:
        words += f", requests from {line.input_tokens_min:,} input tokens"
    return {
        "meter": line.meter,
        "words": words,
        "quantity": f"{line.quantity_tokens:,}",
        "price": exact_dollars(line.unit_price_nanos),
        "amount": dollars(line.amount_cents),
        "exact": exact_dollars(line.amount_nanos),
    }


def _notes(invoice: Invoice) -> list[str]:
    notes = [invoice.tax["note"]] if invoice.tax.get("note") else []
    notes.append(
        "Prices are in US dollars per million tokens. Each line is rounded to cents once; "
        f"before rounding, the usage came to {exact_dollars(invoice.usage_nanos)}."
    )
    if invoice.buyer.get("currency_micros") and invoice.total_cents:
        notes.append(in_currency(invoice.total_cents, invoice.buyer))
    return notes


def in_currency(amount_cents: int, buyer: dict[str, Any]) -> str:
    """Return what dollars are about worth in the currency that the buyer reads."""
    micros, name = buyer["currency_micros"], buyer["currency"]
    rate = f"{micros // MILLION}.{micros % MILLION:06}".rstrip("0").rstrip(".")
    return (
        f"For information: {dollars(amount_cents)} is about {name} "
        f"{_worth(amount_cents, micros, name)} at "
        f"{rate} to the dollar, as of {day(date.fromisoformat(buyer['currency_as_of']))}."
    )


def _worth(amount_cents: int, micros: int, currency: str) -> str:
    """Return cents at a rate, half up, with the decimals of the currency: 10.00 at 150.5 is 1,505
    yen, and at 0.92 it is 9.20 euros."""
    decimals = 0 if currency in WITHOUT_DECIMALS else 3 if currency in THREE_DECIMALS else 2
    scale = 100 * MILLION
    worth = (amount_cents * micros * 10**decimals + scale // 2) // scale
    whole, part = divmod(worth, 10**decimals)
    return f"{whole:,}.{part:0{decimals}}" if decimals else f"{whole:,}"


def _credited(note: CreditNote) -> list[dict[str, Any]]:
    rows: Iterable[Any] = note.lines.select_related("line").order_by("line__position")
    return [
        {
            "title": row.line.variant_name,
            "tier": tier_words(row.line.tier),
            "note": "",
            "rows": [
                {
                    **_row(row.line),
                    "quantity": "",
                    "amount": dollars(row.amount_cents),
                    "exact": dollars(row.amount_cents),
                }
            ],
        }
        for row in rows
    ]
