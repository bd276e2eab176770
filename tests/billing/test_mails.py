"""Every mail, with all that it may say and with none of it: no template code, no label without its
value, and amounts that add up. Mails about money are made by the functions that send them."""

import re
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.template import engines
from django.template.base import TextNode

from billing.alerts import telling as alerts
from billing.alerts.looking import Raised
from billing.collection.models import Case, StepKind
from billing.collection.selectors import Debt
from billing.collection.services import telling as dunning
from billing.invoicing import announcing
from billing.invoicing.models import CreditNote, Invoice
from billing.invoicing.selectors import Standing
from billing.payments import telling as payments
from billing.payments.models import (
    AutoTopUp,
    Dispute,
    PaymentMethod,
    Purpose,
    Refund,
    StripePayment,
)
from control.accounts.notifications import NEW_DEVICE, SECURITY_EMAILS
from control.mail.services import RenderedEmail, render
from control.settings import TEMPLATES
from serving.contract.money import CENT_NANOS
from tests.fixtures.mails import CONTEXT

pytestmark = pytest.mark.unit
LINK = "https://console.example/x"
NOW = datetime(2026, 11, 1, 2, tzinfo=UTC)
DOLLAR = 100 * CENT_NANOS
TAX = {"name": "VAT", "rate_basis_points": 1900, "is_reverse_charge": False, "note": ""}
Sender = Callable[[bool], None]
CODE = re.compile(r"\{[{%#]|[%#}]\}|MISSING|\bNone\b|\bTrue\b|\bFalse\b")
HOLE = re.compile(r"^ | $|\S {2,}[a-z]|\n\n\n|\(\)|:\s*[.,)]|[.,:] ?[.,]\s", re.MULTILINE)
"""What a sentence looks like whose value is missing."""
AMOUNT = re.compile(r"(-?)\$([\d,]+)\.(\d\d)")
SENDERS: dict[str, list[Sender]] = defaultdict(list)
"""What sends each mail; called with True for all that it may say, and with False for none."""


def sends(template: str) -> Callable[[Sender], Sender]:
    def keep(sender: Sender) -> Sender:
        SENDERS[template].append(sender)
        return sender

    return keep


def invoice(*, full: bool) -> Invoice:
    net = 8000 if full else 0
    return Invoice(
        id="inv_1", organization_id="org_1", number="INV-000001", issued_at=NOW,
        starts_on=date(2026, 10, 1), due_on=date(2026, 11, 15), currency="USD",
        seller={"name": "Penstock", "bank_details": ["IBAN 1", "BIC 2"] if full else []},
        buyer={"name": "Acme"}, tax=TAX if full else {}, subtotal_cents=10_000,
        credit_applied_cents=10_000 - net, net_cents=net, tax_cents=net * 19 // 100,
        total_cents=net + net * 19 // 100, paid_before_nanos=2000 * CENT_NANOS if full else 0,
    )  # fmt: skip


def credit_note(*, full: bool) -> CreditNote:
    tax = 190 if full else 0
    return CreditNote(
        id="note_1", organization_id="org_1", number="CN-000001", issued_at=NOW,
        invoice=invoice(full=full), reason="a mistake", net_cents=1000, tax_cents=tax,
        total_cents=1000 + tax, settled_nanos=400 * CENT_NANOS if full else 0,
    )  # fmt: skip


def payment(*, full: bool, purpose: str = Purpose.AUTOMATIC) -> StripePayment:
    card = PaymentMethod(kind="card", brand="visa", last4="4242")
    return StripePayment(
        id="pmt_1", organization_id="org_1", purpose=purpose, amount_cents=1000, tax_cents=190,
        method=card if full else None, created_at=NOW,
        receipt_url=LINK if full else "",
        failure_words="Your card was declined." if full else "",
    )  # fmt: skip


def look(*, full: bool) -> Any:
    due = tuple(Standing(invoice(full=True), left * CENT_NANOS, "", 0, False) for left in (0, 5000))
    case = Case(
        next_kind=StepKind.RETRY if full else "", next_on=date(2026, 11, 9) if full else None
    )
    case.organization_id = "org_1"
    return SimpleNamespace(
        case=case, organization=SimpleNamespace(name="Acme"), owed=Debt(due, False, None), now=NOW
    )


sends("invoice")(lambda full: announcing.announce_finalized(invoice(full=full), now=NOW))
sends("invoice_paid")(lambda full: announcing.announce_paid(invoice(full=full), now=NOW))
sends("credit_note")(lambda full: announcing.announce_credit_note(credit_note(full=full), now=NOW))
sends("reminder")(lambda full: dunning.reminded(look(full=full), "reminder"))
sends("service_limited")(lambda full: dunning.limited(look(full=full), "limited"))
sends("service_suspended")(lambda full: dunning.suspended(look(full=full), "suspended"))
sends("service_reinstated")(lambda full: dunning.reinstated(look(full=full), "reinstated"))
sends("payment_failed")(
    lambda full: dunning.payment_failed(
        look(full=full), payment(full=full, purpose=Purpose.INVOICE)
    )
)
sends("top_up_declined")(lambda full: payments._on_failed(None, payment(full=full), NOW))
sends("top_up_stopped")(
    lambda full: payments._on_stopped(None, AutoTopUp(organization_id="org_1"), NOW)
)
sends("payment_returned")(lambda full: payments.tell_bounced(payment(full=full), now=NOW))


@sends("payment_succeeded")
def charged(full: bool) -> None:
    for purpose in (Purpose.TOP_UP, Purpose.AUTOMATIC, Purpose.INVOICE):
        payments._on_succeeded(None, payment(full=full, purpose=purpose), NOW)


@sends("payment_returned")
def refunded(full: bool) -> None:
    refund = Refund(
        id="ref_1", organization_id="org_1", payment=payment(full=full), amount_cents=500
    )
    payments._on_returned(None, refund, NOW)


@sends("dispute")
def disputed(full: bool) -> None:
    dispute = Dispute(
        stripe_id="dp_1", organization_id="org_1", payment=payment(full=full), taken_cents=500,
        withdrawn_at=NOW, reinstated_at=None if full else NOW,
    )  # fmt: skip
    payments._on_dispute(None, dispute, NOW)


def alert(kind: str, budget_id: str, rule: str, figures: dict[str, Any], *, is_hard: bool) -> None:
    raised = Raised(1, "org_1", kind, budget_id, rule, NOW, figures)
    names = {"org_1": "Acme", "proj_1": "Search"}
    alerts.tell(raised, names=names, is_hard=is_hard, now=NOW)


@sends("budget_reached")
def reached(full: bool) -> None:
    figures = {
        "percent": 80, "spent_nanos": 8 * DOLLAR, "limit_nanos": 10 * DOLLAR,
        "renews_at": NOW.isoformat() if full else None,
    }  # fmt: skip
    budget_id = "limit:proj_1:month" if full else "balance:org_1"
    alert("spending_limit.reached", budget_id, "80", figures, is_hard=full)


def low(rule: str) -> Sender:
    def send(full: bool) -> None:
        figures = {"balance_nanos": 7 * DOLLAR, "nanos_per_day": 2 * DOLLAR if full else None}
        alert("balance.low", "balance:org_1", rule, figures, is_hard=True)

    return send


def unusual(rule: str) -> Sender:
    def send(full: bool) -> None:
        figures = {"spent_nanos": 31 * DOLLAR, "usual_nanos": 10 * DOLLAR}
        alert("spending.unusual", "balance:org_1", rule, figures, is_hard=True)

    return send


@sends("credit_expiring")
def expiring(full: bool) -> None:
    figures = {
        "credit_grant_id": "grant_1", "credit_kind": "promotional" if full else "prepaid",
        "amount_nanos": 10 * DOLLAR, "remaining_nanos": 4 * DOLLAR, "expires_at": NOW.isoformat(),
    }  # fmt: skip
    alert("credit.expiring", "balance:org_1", "grant_1", figures, is_hard=True)


for rule in ("runway", "empty"):
    sends("balance_low")(low(rule))
for rule in ("hour", "day"):
    sends("spend_unusual")(unusual(rule))

SUSPENDED = {
    "organization": "Acme",
    "why": "Abuse.",
    "support": "help@penstock.example",
    "url": LINK,
}
INVOICE_REQUEST = {
    "organization": "Acme", "organization_id": "org_1", "amount": "$1,250.00", "note": "PO 4711",
    "requester": "ada@acme.example", "recipient": "Acme GmbH", "organization_url": LINK,
    "payment_url": LINK,
}  # fmt: skip
PERSON = {"email": "new@acme.example"}
CONTEXTS: dict[str, list[dict[str, Any]]] = {
    "confirm_address": [{**PERSON, "activate_url": LINK, "days": days} for days in (1, 3)],
    "reset_password": [{**PERSON, "password_reset_url": LINK}],
    "account_exists": [{**PERSON, "password_reset_url": LINK}],
    "unknown_account": [{**PERSON, "signup_url": LINK}],
    "device_link": [{**PERSON, "url": LINK, "device": "Firefox on Linux", "address": "192.0.2.1"}],
    "invitation": [CONTEXT, {**CONTEXT, "days": 1}],
    "invoice_request": [INVOICE_REQUEST, {**INVOICE_REQUEST, "note": ""}],
    "organization_suspended": [SUSPENDED, {**SUSPENDED, "support": ""}],
    "organization_resumed": [SUSPENDED],
    "operator_invitation": [
        {"inviter": "ada@penstock.example", "role": "finance", "accept_url": LINK, "days": 7}
    ],
    "webhook_endpoint_disabled": [
        {"organization": "Acme", "url": LINK, "reason": "It answered 410.", "endpoint_url": LINK}
    ],
    "security_email": [
        {
            "email": "ada@acme.example", "subject": str(one.subject), "advice": str(one.advice),
            "sentence": str(one.sentence), "label": str(one.label), "url": LINK, "facts": facts,
        }
        for one in (NEW_DEVICE, *SECURITY_EMAILS.values())
        for facts in ([["Time", "1 November 2026, 02:00 UTC"]], [["Time", "now"], ["By", "Bo"]])
    ],
}  # fmt: skip
"""What mails without amounts are made of."""


@pytest.fixture(autouse=True)
def missing_values_show(monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = engines["django"]
    monkeypatch.setattr(engine.engine, "string_if_invalid", "MISSING(%s)")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The mails that senders send, in place of the outbox; the organization owes $7 at first."""
    found: list[dict[str, Any]] = []
    replaced = {
        "send_mail": lambda **values: found.append(values),
        "send_event": lambda **values: None,
        "recipients": lambda organization_id: ["ada@acme.example"],
        "notification_recipients": lambda organization_id: ["ada@acme.example"],
        "organizations": lambda: SimpleNamespace(get=lambda pk: SimpleNamespace(name="Acme")),
        "invoice_by_id": lambda invoice_id: invoice(full=True),
        "owed_nanos": lambda organization_id: 7 * DOLLAR,
        "runway_days": lambda organization_id, nanos_per_day, now: 3,
    }
    for module in (announcing, dunning, payments, alerts):
        for name, value in replaced.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    return found


def made(
    template: str, sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> list[RenderedEmail]:
    for sender in SENDERS[template]:
        sender(True)
    with monkeypatch.context() as patch:
        patch.setattr(payments, "owed_nanos", lambda organization_id: 0)
        for sender in SENDERS[template]:
            sender(False)
    assert {one["template"] for one in sent} <= {template}
    return [render(template, values) for values in [*(one["context"] for one in sent),
                                                    *CONTEXTS.get(template, [])]]  # fmt: skip


def templates() -> set[str]:
    folders = [Path(app.path) / "templates" / "mail" for app in apps.get_app_configs()]
    files = (file for folder in folders for file in folder.glob("*.subject.txt"))
    return {file.name.removesuffix(".subject.txt") for file in files}


def test_the_tables_have_every_mail() -> None:
    assert SENDERS.keys() | CONTEXTS.keys() == templates()


@pytest.mark.parametrize("template", sorted(SENDERS.keys() | CONTEXTS.keys()))
def test_a_mail_says_what_it_has_and_nothing_else(
    template: str, sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    mails = made(template, sent, monkeypatch)
    assert mails
    for mail in mails:
        for text in (mail.subject, mail.text, mail.html):
            assert not re.search(CODE, text), text
        for text in (mail.subject, mail.text):
            assert not re.search(r"&\w+;|<\w", text), text
            assert not re.search(HOLE, text), text
        assert not re.search(r":\s*\Z|:\n\n\n|:\n*\n-- *\n", mail.text), mail.text
        assert not re.search(r"<(t[dh]|p|h1|code|bdi|strong|title)\b[^>]*>\s*</\1>", mail.html)
        assert not re.search(r":\s*</(p|strong|bdi|td|th)>(?!\s*<p)|<(p|td|th)[^>]*> ", mail.html)
        assert words(mail.html) >= amounts(mail.text), "the text says an amount that the HTML lacks"


def amounts(text: str) -> set[str]:
    return {match[0] for match in AMOUNT.finditer(text)}


def words(html: str) -> set[str]:
    return amounts(unescape(re.sub(r"<[^>]+>", " ", html)))


def rows(text: str) -> dict[str, int]:
    """The lines of a text that end with an amount, in cents, by their label."""
    found = {}
    for line in text.splitlines():
        if match := re.fullmatch(rf"(.*?):?\s+{AMOUNT.pattern}", line):
            sign = -1 if match[2] else 1
            found[match[1].strip()] = sign * int(match[3].replace(",", "") + match[4])
    return found


def test_an_invoice_adds_up_with_its_tax(sent, monkeypatch) -> None:
    full, bare = (rows(mail.text) for mail in made("invoice", sent, monkeypatch))
    assert full == {
        "Subtotal": 10_000, "Credit applied": -2000, "VAT 19 %": 1520, "Total": 9520,
        "Paid before issue": -2000, "Amount due": 7520,
    }  # fmt: skip
    assert full["Total"] == sum(list(full.values())[:3])
    assert full["Amount due"] == full["Total"] + full["Paid before issue"]
    assert bare == {"Subtotal": 10_000, "Credit applied": -10_000, "Total": 0, "Amount due": 0}


def test_a_payment_adds_up_with_its_tax(sent, monkeypatch) -> None:
    """Of each purpose, with a saved card and without one."""
    for mail in made("payment_succeeded", sent, monkeypatch):
        figures = rows(mail.text)
        assert figures["Total"] == sum(figures.values()) - figures["Total"] == 1190
        assert ("with visa …4242" in mail.text) is ("Card receipt" in mail.text)


def test_a_credit_note_adds_up_with_its_tax_and_where_it_went(sent, monkeypatch) -> None:
    full, bare = made("credit_note", sent, monkeypatch)
    assert rows(full.text) == {"Subtotal": 1000, "VAT 19 %": 190, "Credited": 1190}
    assert "$4.00 was deducted from the amount you owe, and $7.90 was added" in full.text
    assert rows(bare.text) == {"Subtotal": 1000, "Credited": 1000}
    assert "$10.00 was added to your balance." in bare.text


@pytest.mark.parametrize("template", ["reminder", "payment_failed", "service_limited",
                                      "service_suspended"])  # fmt: skip
def test_what_is_due_is_the_sum_of_its_invoices(template, sent, monkeypatch) -> None:
    for mail in made(template, sent, monkeypatch):
        lines = [int(match[2].replace(",", "") + match[3]) for match in AMOUNT.finditer(mail.text)
                 if ", due " in mail.text[: match.start()].splitlines()[-1]]  # fmt: skip
        assert len(lines) == 2
        assert sum(lines) == rows(mail.text)["Amount due"] == 9520 + 4520


def test_no_template_shows_its_code() -> None:
    """A tag or a comment that spans lines is text to Django."""
    engine: Any = engines["django"]
    folders = [*TEMPLATES[0]["DIRS"]]
    folders += [Path(app.path) / "templates" for app in apps.get_app_configs() if is_ours(app)]
    shown = []
    for folder in map(Path, folders):
        for file in folder.rglob("*.*"):
            template = engine.engine.from_string(file.read_text())
            texts = template.nodelist.get_nodes_by_type(TextNode)
            shown += [file for text in texts if re.search(r"\{[{%#]|[%#]\}", text.s)]
    assert shown == []


def is_ours(app: Any) -> bool:
    return app.name.split(".")[0] in {"control", "billing", "web"}
