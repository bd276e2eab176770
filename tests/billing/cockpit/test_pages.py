"""The operator's pages on the books: figures agree with the ledger, and only operators see them."""

import csv
import json
import re
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.contrib.admin.utils import unquote
from django.test import Client
from django.urls import resolve

from billing.cockpit.causes import GRANT, INVOICE, NOTE, PAYMENT, TRANSACTION, Known, Made
from billing.cockpit.revenue import keep_revenue
from billing.cockpit.statement import StatementLine
from billing.credit.models import CreditGrant, Payment
from billing.credit.services.payments import record_payment
from billing.invoicing.models import CreditNote, Invoice
from billing.ledger.models import Account
from control.accounts.models import User
from control.organizations.models import Organization
from control.permissions import Actor
from serving.contract.money import CENT_NANOS
from tests.fixtures.following import catch_up
from tests.fixtures.invoicing import (
    AFTER,
    MILLION_CENTS,
    close,
    finish_month,
    invoice,
    october,
    use_cents,
)
from tests.fixtures.usage import broken_promises, make_customer, make_price

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
BASE = "/admin/ledger/account/"
OWED, STATEMENT = f"{BASE}owed/", f"{BASE}statement/"
REVENUE, DEFERRED = f"{BASE}revenue/", f"{BASE}deferred/"
TRIAL_BALANCE, JOURNAL = f"{BASE}trial-balance/", f"{BASE}journal/"
PAGES = [OWED, STATEMENT, REVENUE, DEFERRED, TRIAL_BALANCE, JOURNAL]
FILES = [f"{page}?format=csv" for page in (OWED, DEFERRED, TRIAL_BALANCE, JOURNAL)]
HOSTILE = "<script>alert('o')</script> =2+2 \u202e\u0007"


def log_in(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator():
    return log_in(User.objects.create_superuser("operator@penstock.test"))


@pytest.fixture
def at(monkeypatch):
    def travel(moment: datetime) -> None:
        monkeypatch.setattr("django.utils.timezone.now", lambda: moment)

    return travel


def text(answer):
    assert answer.status_code == 200
    return answer.content.decode()


def lines(answer):
    body = b"".join(answer) if answer.streaming else answer.content
    return list(csv.DictReader(StringIO(body.decode())))


def balances_in(answer):
    """Return the balances of a statement's lines, as they are shown."""
    return re.findall(r'<td class="num"[^>]*>([-$0-9.,]+)</td></tr>', text(answer))


def owing(name: str = "Acme Robotics", cents: int = 12_345):
    """Return a postpaid customer who used so much in October, and owes it."""
    customer = make_customer(name)
    price = make_price(f"model-{customer.id[-6:].lower()}", at=october(1), **MILLION_CENTS)
    use_cents(customer, price, cents, october(7))
    return customer


def pay(customer, cents: int, now: datetime, key: str = "one"):
    return record_payment(
        actor=Actor.for_system("tests"),
        organization_id=customer.id,
        amount_nanos=cents * CENT_NANOS,
        idempotency_key=key,
        reason="By bank transfer",
        now=now,
    )


@pytest.mark.parametrize("page", [*PAGES, *FILES])
def test_members_see_nothing_and_every_operator_may_look(page):
    assert Client().get(page).status_code == 302
    assert log_in(User.objects.create_user("member@acme.test")).get(page).status_code == 302
    clerk = User.objects.create_user("clerk@penstock.test", operator_role="viewer")
    assert log_in(clerk).get(page).status_code == 200


@pytest.mark.parametrize("page", PAGES)
def test_empty_books_say_so(operator, page):
    assert "op-empty" in text(operator.get(page))


def test_debts_stand_by_their_age_and_are_the_receivables(operator, at):
    acme, other = owing(), owing("Globex", 500)
    finish_month()
    close()
    bill = invoice(acme)
    pay(acme, 345, AFTER)
    for days, place in ((0, 0), (1, 1), (30, 1), (31, 2), (60, 2), (61, 3), (90, 3), (91, 4)):
        at(datetime.combine(bill.due_on, AFTER.timetz()) + timedelta(days=days))
        operator = log_in(User.objects.get(email="operator@penstock.test"))
        rows = {row["organization_id"]: row for row in lines(operator.get(OWED, {"format": "csv"}))}
        row = rows[acme.id]
        names = ("not_due", "to_30", "to_60", "to_90", "over_90")
        assert [row[f"{name}_usd"] for name in names] == [
            "120.00" if n == place else "0.00" for n in range(5)
        ]
        assert rows[other.id]["owed_usd"] == "5.00"
    held = Account.objects.filter(kind="accounts_receivable").values_list(
        "balance_nanos", flat=True
    )
    assert sum(held) == 12_500 * CENT_NANOS
    page = text(operator.get(OWED))
    assert "$125.00" in page and bill.number in page and "91 days late" in page


def test_usage_that_no_invoice_asks_for_stands_beside_the_invoices(operator, at):
    acme = owing()
    finish_month()
    at(AFTER)
    [row] = lines(operator.get(OWED, {"format": "csv"}))
    assert (row["invoiced_usd"], row["not_invoiced_yet_usd"]) == ("0.00", "123.45")
    assert row["organization_id"] == acme.id
    pay(acme, 12_345, AFTER)
    assert "op-empty" in text(operator.get(OWED))


def test_a_statement_reads_like_a_banks(operator, at):
    acme = owing()
    finish_month()
    close()
    pay(acme, 10_000, AFTER + timedelta(days=3))
    bill = invoice(acme)
    page = text(operator.get(STATEMENT, {"organization": acme.id}))
    assert "Acme Robotics: Owed by the customer" in page
    assert "By bank transfer" in page and "Usage of 2026-10-07" in page
    assert balances_in(operator.get(STATEMENT, {"organization": acme.id})) == [
        "$23.45", "$123.45",
    ]  # fmt: skip
    cash = text(operator.get(STATEMENT, {"organization": acme.id, "account": "cash"}))
    assert "+$100.00" in cash and "/admin/credit/payment/" in cash
    assert bill.number not in cash


def test_a_statement_says_what_is_used_and_not_posted_yet(operator):
    acme, other = owing(), owing("Globex", 500)
    finish_month()
    price = make_price("today", at=AFTER, **MILLION_CENTS)
    use_cents(acme, price, 678, AFTER)
    catch_up(AFTER)

    def figures(customer, **asked):
        page = text(operator.get(STATEMENT, {"organization": customer.id, **asked}))
        return dict(re.findall(r"<dt>([^<]+)</dt><dd[^>]*>([^<]+)</dd>", page))

    assert figures(acme) == {"Balance now": "$123.45", "Used, not posted yet": "$6.78"}
    assert figures(acme, account="revenue")["Used, not posted yet"] == "$6.78"
    assert figures(acme, account="cash") == {"Balance now": "$0.00"}
    assert figures(other) == {"Balance now": "$5.00", "Used, not posted yet": "$0.00"}
    finish_month(AFTER + timedelta(days=1))
    assert figures(acme) == {"Balance now": "$130.23", "Used, not posted yet": "$0.00"}


def test_a_statement_is_filtered_by_days_and_cause(operator):
    acme = owing()
    finish_month()
    for day in range(1, 6):
        pay(acme, 100 * day, AFTER + timedelta(days=day), key=f"{day}")
    asked = {"organization": acme.id, "from": "2026-11-03", "to": "2026-11-04"}
    page = text(operator.get(STATEMENT, asked))
    assert "Before 2026-11-03" in page and "After 2026-11-04" in page
    rows = lines(operator.get(STATEMENT, asked | {"format": "csv"}))
    assert [row["amount_usd"] for row in rows] == ["-2.00", "-3.00"]
    assert [row["balance_usd"] for row in rows] == ["120.45", "117.45"]
    usage = {"organization": acme.id, "cause": "usage", "format": "csv"}
    assert [row["balance_usd"] for row in lines(operator.get(STATEMENT, usage))] == ["123.45"]


@pytest.fixture
def short_pages(monkeypatch):
    monkeypatch.setattr("billing.cockpit.statement_page.ROWS_MAX", 10)


def test_pages_of_a_statement_leave_nothing_out(operator, short_pages):
    acme = owing(cents=100_000)
    finish_month()
    for count in range(24):
        pay(acme, 10 + count, AFTER + timedelta(minutes=count), key=f"{count}")
    every = lines(operator.get(STATEMENT, {"organization": acme.id, "format": "csv"}))
    shown, address = [], f"{STATEMENT}?organization={acme.id}"
    while address:
        reply = operator.get(address)
        shown += balances_in(reply)
        older = re.search(r'<a href="([^"]*)">Older</a>', text(reply))
        address = older and older[1].replace("&amp;", "&")
    assert len(shown) == 25
    assert [value.replace("$", "").replace(",", "") for value in shown] == [
        row["balance_usd"] for row in reversed(every)
    ]
    jsonl = operator.get(STATEMENT, {"organization": acme.id, "format": "jsonl"})
    rows = [json.loads(line) for line in b"".join(jsonl).splitlines()]
    assert [row["balance_usd"] for row in rows] == [row["balance_usd"] for row in every]
    assert sum(row["amount_nanos"] for row in rows) == rows[-1]["balance_nanos"]


def test_a_page_of_one_account_is_no_page_of_another(operator, short_pages):
    acme = owing(cents=100_000)
    finish_month()
    for count in range(12):
        pay(acme, 10, AFTER + timedelta(minutes=count), key=f"{count}")
    page = text(operator.get(STATEMENT, {"organization": acme.id}))
    older = re.search(r'<a href="([^"]*)">Older</a>', page)[1].replace("&amp;", "&")
    cash = older.replace("accounts_receivable", "cash")
    shown = [balances_in(operator.get(address)) for address in (cash, cash.split("&before")[0])]
    assert shown[0] == shown[1] != []


def test_a_filtered_page_stops_looking_and_goes_on_from_there(operator, monkeypatch):
    monkeypatch.setattr("billing.cockpit.statement.WALKED_MAX", 5)
    acme = owing()
    finish_month()
    for count in range(12):
        pay(acme, 1, AFTER + timedelta(minutes=count), key=f"{count}")
    address, pages = f"{STATEMENT}?organization={acme.id}&cause=usage", []
    while address:
        page = text(operator.get(address))
        pages.append(page.count("Usage of"))
        older = re.search(r'<a href="([^"]*)">Older</a>', page)
        address = older and older[1].replace("&amp;", "&")
    assert pages == [0, 0, 1]


def test_revenue_agrees_with_the_ledger(operator):
    owing()
    owing("Globex", 500)
    catch_up(october(8))
    page = text(operator.get(REVENUE))
    assert "agrees to the nano-dollar" in page and "2026-10" in page and "$128.45" in page
    finish_month()
    live = lines(operator.get(REVENUE, {"format": "csv"}))
    assert keep_revenue() > 0
    assert keep_revenue() == 0
    assert lines(operator.get(REVENUE, {"format": "csv"})) == live
    assert sum(float(row["charged_usd"]) for row in live) == 128.45
    page = text(operator.get(REVENUE))
    chart = json.loads(re.search(r'<script id="revenue-chart"[^>]*>(.*?)</script>', page)[1])
    assert {row["charged_usd"] for row in live} == {
        value for series in chart["series"] for value in series["values"]
    }


def test_revenue_that_was_kept_wrongly_is_found(superuser_connection):
    owing()
    finish_month()
    assert keep_revenue() > 0
    assert broken_promises() == []
    superuser_connection.execute("UPDATE cockpit_day_revenue SET nanos = nanos + 1")
    assert any("Revenue kept of sealed days" in promise for promise in broken_promises())


def test_unspent_credit_stands_by_age_and_is_the_accounts(operator, at):
    acme = make_customer("Acme Robotics")
    pay(acme, 5_000, datetime(2026, 1, 1, tzinfo=UTC), key="old")
    pay(acme, 700, datetime(2026, 10, 20, tzinfo=UTC), key="new")
    at(AFTER)
    rows = lines(operator.get(DEFERRED, {"format": "csv"}))
    prepaid = [row["unspent_usd"] for row in rows if row["kind"] == "prepaid"]
    assert prepaid == ["7.00", "0.00", "0.00", "50.00", "0.00"]
    page = text(operator.get(DEFERRED))
    assert page.count("the ledger agrees to the nano-dollar") == 2
    assert "Acme Robotics" in page


@pytest.mark.parametrize("page", PAGES)
def test_hostile_names_and_senseless_filters_harm_nothing(operator, page):
    acme = owing(HOSTILE)
    pay(acme, 20_000, AFTER)
    names = ("organization", "account", "grant", "from", "to", "cause", "before", "q", "page")
    for value in ("", "x", "-1", "9999-12-31", "0001-01-01", "\u0663", HOSTILE):
        found = text(operator.get(page, dict.fromkeys(names, value)))
        assert "<script>alert" not in found
    found = text(operator.get(page, {"organization": acme.id, "to": "9999-12-31"}))
    assert "<script>alert" not in found


def test_names_that_spreadsheets_would_run_are_quoted(operator):
    acme = owing()
    Organization.objects.filter(id=acme.id).update(name="=HYPERLINK(1)")
    finish_month()
    [row] = lines(operator.get(OWED, {"format": "csv"}))
    assert row["organization"] == "'=HYPERLINK(1)"


def test_few_questions_do_for_a_page(operator, django_assert_max_num_queries):
    for count in range(3):
        customer = owing(f"Customer {count}")
    finish_month()
    close()
    pay(customer, 20_000, AFTER)
    asked = {"organization": customer.id, "from": "2026-10-01", "to": "2026-12-31"}
    for page in PAGES:
        operator.get(page, asked)
        with django_assert_max_num_queries(10):
            text(operator.get(page, asked))


def test_an_id_that_the_admin_would_read_otherwise_is_quoted_in_its_address():
    made = Made("Rounding", "", INVOICE, "inv_3Bx_5Fy")
    assert unquote(resolve(made.url).kwargs["object_id"]) == "inv_3Bx_5Fy"


@pytest.mark.parametrize(
    ("cause", "source", "title", "words", "page"),
    [
        ("payment", "payment:org_1:a:b", "Payment", "By card", PAYMENT),
        ("payment", "grant:grant_2", "Payment", "By card", PAYMENT),
        ("tax", "tax:org_1:a:b", "Tax on a payment", "By card", PAYMENT),
        ("expiry", "expiry:grant_2:1", "Credit expiry", "A favour", GRANT),
        ("grant", "grant:grant_2", "Credit grant", "A favour", GRANT),
        ("tax", "tax:invoice:inv_1", "Tax on invoice INV-1", "", INVOICE),
        ("rounding", "rounding:invoice:inv_1", "Rounding of invoice INV-1", "", INVOICE),
        ("correction", "credit-note:cn_1", "Credit note CN-1", "A mistake", NOTE),
        ("correction", "credit-note:org_1:key", "Correction", "", TRANSACTION),
        ("correction", "grant:grant_2", "Correction", "A favour", GRANT),
        ("refund", "refund:org_1:a:b", "Refund", "", TRANSACTION),
        ("rounding", "rounding:invoice:unknown", "Rounding of an invoice", "", TRANSACTION),
        ("write_off", "of no rule", "Write-off", "", TRANSACTION),
    ],
)
def test_a_line_is_called_by_what_made_it(cause, source, title, words, page):
    grant = CreditGrant(id="grant_2", reason="A favour")
    payment = Payment(id="pay_1", grant=grant, idempotency_key="a:b", reason="By card")
    known = Known(
        organization_id="org_1",
        grants={grant.id: grant},
        payments={payment.idempotency_key: payment},
        payments_by_grant={grant.id: payment},
        invoices={"inv_1": Invoice(id="inv_1", number="INV-1")},
        notes={"cn_1": CreditNote(id="cn_1", number="CN-1", reason="A mistake")},
    )
    line = StatementLine(
        entry_id=1, nanos=1, transaction_id="t1", source=source, cause=cause, posted_at=AFTER,
        accounted_on=AFTER.date(), owner_id="", balance_nanos=1,
    )  # fmt: skip
    made = known.made(line)
    assert (made.title, made.words, made.page) == (title, words, page)
