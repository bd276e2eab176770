"""Every document as PDF, with all that it may show and with none of it: amounts add up, no label is
without its value, names of all scripts are there, and no word sticks out of its column."""

import io
import re
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pypdf import PdfReader

from billing.invoicing import printed, running
from billing.invoicing.models import BillingProfile, CreditNote, Invoice, InvoiceLine, LegalEntity
from billing.invoicing.parties import buyer_printed, seller_printed
from billing.invoicing.periods import Period
from billing.invoicing.printed import credit_note_printed, invoice_printed, line_groups
from billing.invoicing.running import RunningMonth, draft_printed
from billing.invoicing.typeset import fonts
from billing.invoicing.typeset.fonts import unprintable
from billing.invoicing.typeset.pdf import pdf
from control.organizations.models import Organization
from serving.contract.money import CENT_NANOS
from tests.billing.invoicing.test_documents import document

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
NOW = datetime(2026, 11, 1, 2, tzinfo=UTC)
OCTOBER = date(2026, 10, 1)
WORD = "m" * 120
"""Wider than a page."""
LABELS = ("Purchase order", "Tax ID", "Pay by bank transfer", "Reference", "Credit applied",
          "VAT", "Paid before issue", "At this pace", "Charges by day", "For information",
          "requests from", "priority tier", "Received in")  # fmt: skip
"""What a document says only where it has it."""
SCRIPTS = {
    "Simplified Chinese": "北京阀门科技有限公司", "Traditional Chinese": "臺灣閥門股份有限公司",
    "Japanese": "株式会社ペンストックひらがな", "Korean": "주식회사 펜스톡",
    "Thai": "บริษัท เพนสต็อก จำกัด",
    "Arabic": "شركة البوابة المحدودة", "Persian": "شرکت دریچه", "Urdu": "پین اسٹاک کمپنی",
    "Hebrew": "פנסטוק בע״מ", "Hindi": "पेनस्टॉक प्राइवेट लिमिटेड", "Bengali": "পেনস্টক লিমিটেড",
    "Punjabi": "ਪੈਨਸਟਾਕ ਲਿਮਿਟੇਡ", "Gujarati": "પેનસ્ટોક લિમિટેડ", "Odia": "ପେନଷ୍ଟକ ଲିମିଟେଡ",
    "Tamil": "பென்ஸ்டாக் லிமிடெட்", "Telugu": "పెన్‌స్టాక్ లిమిటెడ్", "Kannada": "ಪೆನ್‌ಸ್ಟಾಕ್ ಲಿಮಿಟೆಡ್",
    "Malayalam": "പെൻസ്റ്റോക്ക് ലിമിറ്റഡ്", "Sinhala": "පෙන්ස්ටොක් සමාගම", "Burmese": "ပင်စတော့ ကုမ္ပဏီ",
    "Khmer": "ក្រុមហ៊ុន ភេនស្តុក", "Lao": "ບໍລິສັດ ເພນສະຕັອກ", "Georgian": "პენსტოკი",
    "Armenian": "Փենսթոք ՍՊԸ", "Amharic": "ፔንስቶክ ኃላፊነቱ", "Russian": "Общество «Пенсток»",
    "Greek": "Πένστοκ Ανώνυμη", "Vietnamese": "Công ty Cửa Van",
    "Polish": "Zażółć gęślą Sp. z o.o.",
}  # fmt: skip


def text_of(document: dict[str, Any]) -> str:
    pages = PdfReader(io.BytesIO(pdf(document))).pages
    return "\n".join(page.extract_text() for page in pages)


def entity(full: bool) -> LegalEntity:
    more = {
        "address": "Street 5\n10115 Berlin", "tax_ids": "VAT DE136695976",
        "email": "billing@example.com", "bank_details": "IBAN 1\nBIC 2", "footer": "HRB 1",
    }  # fmt: skip
    return LegalEntity(name="Penstock", country="DE", **(more if full else {}))


def profile(full: bool) -> BillingProfile:
    more = {"line1": "Street 6", "city": "Paris", "country": "FR", "tax_id": "FR40303265045"}
    return BillingProfile(organization=Organization(name="Acme"), **(more if full else {}))


def lines(full: bool) -> list[InvoiceLine]:
    return [
        InvoiceLine(
            position=position, variant_name="demo:bf16", tier="priority" if full else "default",
            meter=meter, received_on=date(2026, 9, 1) if full else OCTOBER, quantity_tokens=5000,
            input_tokens_min=200_000 if full else 0, unit_price_nanos=150_000_000,
            amount_nanos=amount * CENT_NANOS, amount_cents=amount,
        )
        for position, (meter, amount) in enumerate((("input", 7000), ("output", 3000)))
    ]  # fmt: skip


def invoice(full: bool) -> Invoice:
    net = 8000 if full else 0
    tax = {"name": "VAT", "rate_basis_points": 1900, "note": "Taxed in France."} if full else {}
    buyer = buyer_printed(profile(full))
    if full:
        buyer |= {"currency": "EUR", "currency_micros": 920_000, "currency_as_of": "2026-11-01"}
    row = Invoice(
        id="inv_1", number="INV-000001", issued_at=NOW, starts_on=OCTOBER, paper="a4",
        due_on=date(2026, 11, 15), purchase_order="PO-7" if full else "", buyer=buyer, tax=tax,
        seller=seller_printed(entity(full)), days=[[1, 2, 3]] * 31 if full else [],
        usage_nanos=10_000 * CENT_NANOS, subtotal_cents=10_000, credit_applied_cents=10_000 - net,
        net_cents=net, tax_cents=net * 19 // 100, total_cents=net + net * 19 // 100,
        paid_before_nanos=2000 * CENT_NANOS if full else 0,
    )  # fmt: skip
    row._prefetched_objects_cache = {"lines": lines(full)}
    return row


def printed_invoice(full: bool, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return invoice_printed(invoice(full))


def printed_credit_note(full: bool, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(
        printed, "_credited", lambda note: line_groups(lines(full), Period(OCTOBER))
    )
    tax = 1900 if full else 0
    note = CreditNote(
        id="note_1", number="CN-000001", issued_at=NOW, invoice=invoice(full), reason="a mistake",
        net_cents=10_000, tax_cents=tax, total_cents=10_000 + tax,
        settled_nanos=400 * CENT_NANOS if full else 0,
    )  # fmt: skip
    return credit_note_printed(note)


def printed_draft(full: bool, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(running, "billing_profile", lambda organization: profile(full))
    monkeypatch.setattr(running, "legal_entity_of", lambda found: entity(full))
    month = RunningMonth(
        period=Period(OCTOBER), as_of=NOW, lines=lines(full), days=[[1, 2, 3]] * 31 if full else [],
        subtotal_cents=10_000, credit_cents=2000 if full else 10_000,
        pace_cents=20_000 if full else None,
    )  # fmt: skip
    return draft_printed(Organization(name="Acme"), month)


KINDS = {
    printed_invoice: {
        True: {"Credit applied": -2000, "VAT 19 %": 1520, "Total": 9520,
               "Paid before issue": -2000, "Amount due": 7520},
        False: {"Credit applied": -10_000, "Total": 0, "Amount due": 0},
    },
    printed_credit_note: {
        True: {"VAT 19 %": 1900, "Credited": 11_900},
        False: {"Credited": 10_000},
    },
    printed_draft: {
        True: {"Credit applied": -2000, "So far, before tax": 8000},
        False: {"Credit applied": -10_000, "So far, before tax": 0},
    },
}  # fmt: skip
"""Every kind of document, and the rows under its subtotal of $100.00."""


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_document_shows_what_it_has_and_adds_up(kind, full, monkeypatch) -> None:
    found = kind(full, monkeypatch)
    text = " ".join(text_of(found).split())
    assert not re.search(r"None|null|\[\]|\{|\}|\(\)", text)
    for amount in ("$70.00", "$30.00", "Subtotal $100.00"):
        assert amount in text
    for name, cents in KINDS[kind][full].items():
        sign = "-" if cents < 0 else ""
        assert f"{name} {sign}${abs(cents) // 100:,}.{abs(cents) % 100:02}" in text
    if not full:
        expected = {"Credit applied"} & KINDS[kind][full].keys()
        assert {label for label in LABELS if label.upper() in text.upper()} == expected


def test_together_full_documents_show_every_part(monkeypatch) -> None:
    texts = " ".join(" ".join(text_of(kind(True, monkeypatch)).split()) for kind in KINDS)
    assert [label for label in LABELS if label.upper() not in texts.upper()] == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_names_of_all_scripts_are_set_as_an_accessible_archive_document(script) -> None:
    name = SCRIPTS[script]
    assert unprintable([name]) == ""
    found = document(1, buyer={"name": name, "address": [name], "tax_id": "", "country": "JP"})
    made = pdf(found)
    assert b"pdfuaid" in made
    if script in {"Japanese", "Korean", "Simplified Chinese", "Traditional Chinese", "Russian"}:
        text = PdfReader(io.BytesIO(made)).pages[0].extract_text()
        assert "".join(name.split()) in "".join(text.split())
    assert pdf(found) == made


def test_what_no_font_has_is_named(monkeypatch) -> None:
    assert unprintable(["Acme", "Ωmega 漢字", "𓀀𓁐 and 𓀀", "\ue000", 'a"\\']) == "\ue000𓀀𓁐"
    assert unprintable(["", "plain", "Köln\nDüsseldorf", "東京\n大阪"]) == ""
    monkeypatch.setattr(fonts, "PACKAGES", ("manimgx_fonts",))
    fonts.fonts.cache_clear()
    fonts.families.cache_clear()
    try:
        assert unprintable(["株式会社 ABC", "บริษัท"]) == "株式会社"
    finally:
        fonts.fonts.cache_clear()
        fonts.families.cache_clear()


def test_chinese_characters_take_the_forms_of_the_buyers_country() -> None:
    buyer = {"name": "直骨", "address": [], "tax_id": ""}
    made = {pdf(document(1, buyer={**buyer, "country": one})) for one in ("JP", "CN", "TW", "KR")}
    assert len(made) == 4


PLACES = {
    "seller": ("name", "email", ["address"], ["tax_ids"], ["footer"], ["bank_details"]),
    "buyer": ("name", "tax_id", ["address"]),
}


def with_word(place: str, field: Any) -> dict[str, Any]:
    found = document(1)
    value = WORD if isinstance(field, str) else [WORD]
    found[place] = {**found[place], (field if isinstance(field, str) else field[0]): value}
    if field == ["bank_details"]:
        found["bank_details"] = value
    return found


LONG = [
    *(with_word(place, field) for place, fields in PLACES.items() for field in fields),
    document(1, facts=[["Purchase order", WORD]]),
    document(1, notes=[WORD]),
    document(1, totals=[[WORD, "$1.00", style] for style in ("", "strong", "due")]),
    {**document(1), "groups": [{"title": WORD, "tier": WORD, "note": WORD, "rows": []}]},
]


@pytest.mark.parametrize("found", LONG, ids=range(len(LONG)))
def test_long_words_break_in_every_field(found) -> None:
    text = text_of(found).replace("\u200b", "")
    assert "mmm" in text
    assert max(len(run) for run in re.findall(r"m+", text)) < 100
