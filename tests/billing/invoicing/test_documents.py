"""Documents: the same bytes every time, small and quick, and whatever a text holds is text."""

from pathlib import Path
from typing import Any

import pytest

from billing.invoicing.printed import clean, dollars, in_currency, percent
from billing.invoicing.typeset.pdf import is_picture, pdf, png

pytestmark = pytest.mark.unit
MARK = Path("web/static/console/mark.svg").read_text()
ROWS = [
    {"meter": meter, "words": words, "quantity": "482,285,506", "price": "$0.15",
     "amount": "$278.98", "exact": "$278.9812"}
    for meter, words in (("input", "Input tokens"), ("output", "Output tokens"))
]  # fmt: skip
HOSTILE = [
    "*bold* _it_ #panic() $x$ @ref <label> `raw` = head",
    '#import "@preview/evil:1.0.0"; #read("/etc/passwd")',
    "<script>alert(1)</script><b>&amp;",
    "\u202egnp.exe \u2067abc\u2069 שלום مرحبا",
    "漢字 🎉 \ue000 \x00 \x1b[31m \u2028 \ufffe",
    '\\"}],sys.inputs\n\n= x',
    "A" * 10_000,
    "word " * 2_000,
    "",
]


def document(groups: int = 4, **fields: Any) -> dict[str, Any]:
    group = {"title": "penstock-demo:bf16", "tier": "", "note": "", "rows": ROWS}
    return clean(
        {
            "kind": "Invoice", "label": "", "number": "INV-000042", "paper": "a4",
            "seller": {
                "name": "Penstock", "address": ["Street 5"], "tax_ids": ["VAT 1"],
                "email": "billing@example.com", "bank_details": ["IBAN 1"], "footer": ["Footer"],
                "logo_svg": MARK,
            },
            "buyer": {"name": "Acme", "address": ["Street 6"], "tax_id": "DE136695976",
                      "currency": "USD"},
            "facts": [["Issued", "1 November 2026"]], "headline": "$1.00 due",
            "subline": "October 2026", "days": [[10, 20, 30]] * 31, "groups": [group] * groups,
            "totals": [["Subtotal", "$1.00", ""], ["Total", "$1.00", "strong"],
                       ["Amount due", "$1.00", "due"]],
            "notes": ["A note."], "bank_details": ["IBAN 1"], "reference": "INV-000042",
            "issued_on": "2026-11-01", **fields,
        }
    )  # fmt: skip


@pytest.mark.parametrize("paper", ["a4", "us-letter"])
@pytest.mark.parametrize("groups", [1, 12, 40])
def test_a_document_is_the_same_every_time_and_small(paper, groups):
    found = document(groups, paper=paper)
    first = pdf(found)
    assert pdf(found) == first
    assert first.startswith(b"%PDF-")
    assert b"pdfaid" in first
    assert len(first) <= 100_000


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_a_text_holds_is_text(text):
    party = {"name": text, "address": [text, text], "tax_id": text, "currency": text}
    group = {"title": text, "tier": text, "note": text, "rows": [dict.fromkeys(ROWS[0], text)]}
    found = document(
        buyer=party, groups=0, number=text or "x", facts=[[text, text]], notes=[text],
        headline=text, totals=[[text, text, ""]], bank_details=[text],
    ) | {"groups": clean([group])}  # fmt: skip
    found["seller"] = clean({**found["seller"], "name": text or "x", "footer": [text]})
    assert pdf(found).startswith(b"%PDF-")


def test_a_logo_that_is_no_picture_is_left_out():
    assert is_picture(MARK)
    for svg in ("<svg", "hello", "<svg xmlns='http://www.w3.org/2000/svg'"):
        assert not is_picture(svg)
    found = document()
    found["seller"]["logo_svg"] = "<svg"
    assert pdf(found).startswith(b"%PDF-")


def test_pages_are_numbered_on_letter_and_on_a4():
    assert len(png(document(1), ppi=20)) == 1
    assert len(png(document(40), ppi=20)) > 2
    assert png(document(1), ppi=20) != png(document(1, paper="us-letter"), ppi=20)


def test_no_text_turns_the_direction_or_hides():
    assert clean("a\u202eb\x00c\u2028d\x1b") == "abcd"
    assert clean("x" * 10_000) == "x" * 299 + "…"
    assert clean(["\n"]) == [""]
    assert clean("שלום") == "שלום"


@pytest.mark.parametrize(
    ("cents", "text"), [(0, "$0.00"), (7, "$0.07"), (123456, "$1,234.56"), (-350, "-$3.50")]
)
def test_amounts_have_two_decimals(cents, text):
    assert dollars(cents) == text


@pytest.mark.parametrize(("rate", "text"), [(1900, "19 %"), (888, "8.88 %"), (850, "8.5 %")])
def test_rates_are_short(rate, text):
    assert percent(rate) == text


@pytest.mark.parametrize(
    ("currency", "micros", "words"),
    [
        ("EUR", 920_000, "EUR 9.25 at 0.92 to the dollar"),  # 9.246
        ("JPY", 150_500_000, "JPY 1,513 at 150.5 to the dollar"),  # 1512.525: no smaller coin
        ("KWD", 307_000, "KWD 3.085 at 0.307 to the dollar"),  # 3.08535, in thousandths
    ],
)
def test_another_currency_is_told_in_its_own_decimals(currency, micros, words):
    buyer = {"currency": currency, "currency_micros": micros, "currency_as_of": "2026-11-01"}
    said = in_currency(1005, buyer)
    assert said == f"For information: $10.05 is about {words}, as of 1 November 2026."
