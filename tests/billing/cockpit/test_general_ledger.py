"""The trial balance and the journal of all organizations: they add up to zero and to each other,
their files are read a page at a time, and who takes one is in the audit log."""

import csv
import json
import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from html import unescape
from io import StringIO
from random import Random

import pytest
from django.db import connection
from django.db.models import Sum
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.cockpit.general_ledger import movements, trial_balance
from billing.credit.services.budgets import open_balance
from billing.credit.services.payments import record_payment
from billing.ledger.causes import CREDIT_KINDS, RULES, PostingRule
from billing.ledger.models import Account, Entry
from billing.ledger.post import Leg, Posting, post_all
from control.accounts.models import User
from control.audit.models import AuditEvent
from control.organizations.models import Organization
from control.permissions import Actor
from serving.contract.money import CENT_NANOS
from tests.fixtures.audit_words import unclear
from tests.fixtures.invoicing import (
    AFTER,
    MILLION_CENTS,
    close,
    finish_month,
    october,
    use_cents,
)
from tests.fixtures.usage import Customer, make_customer, make_price

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
TRIAL_BALANCE = "/admin/ledger/account/trial-balance/"
JOURNAL = "/admin/ledger/account/journal/"
FIRST = date(2026, 10, 1)
DAYS = [FIRST + timedelta(days=number) for number in range(40)]
SPAN = {"from": DAYS[0].isoformat(), "to": DAYS[-1].isoformat()}


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("operator@penstock.test"))
    return client


@pytest.fixture
def customers() -> list[Customer]:
    found = [make_customer("Acme Robotics"), make_customer("Globex")]
    for each in found:
        open_balance(each.id)
    return found


def posting(rule: PostingRule, customer: Customer, number: int, nanos: int, day: date) -> Posting:
    """Return a movement by all accounts of a rule."""
    credited = [kind for kind in rule.credits if kind not in rule.debits] or rule.credits[:1]
    debited = [kind for kind in rule.debits if kind not in credited]
    legs = [(kind, nanos * len(credited)) for kind in debited]
    legs += [(kind, -nanos * len(debited)) for kind in credited]
    grant = f"grant_{number}"
    names = {"grant": grant, "invoice": str(number), "note": str(number), "key": str(number)}
    return Posting(
        rule, customer.id,
        [Leg(kind, part, grant if kind in CREDIT_KINDS else "") for kind, part in legs],
        names, accounted_on=day,
    )  # fmt: skip


def post_some(customers: list[Customer], count: int = 120) -> None:
    """Post movements of every rule on days of 2026-10-01 to 2026-11-09, several at one moment."""
    chance = Random(count)
    for start in range(0, count, 20):
        post_all(
            [
                posting(
                    RULES[number % len(RULES)], chance.choice(customers), number,
                    chance.randint(1, 10**12), chance.choice(DAYS),
                )
                for number in range(start, min(start + 20, count))
            ],
            now=datetime(2026, 11, 10, tzinfo=UTC) + timedelta(seconds=start),
        )  # fmt: skip


def rows_of(answer, form: str = "csv") -> list[dict]:
    assert answer.status_code == 200
    body = b"".join(answer.streaming_content).decode()
    if form == "csv":
        return list(csv.DictReader(StringIO(body)))
    return [json.loads(line) for line in body.splitlines()]


def text(answer) -> str:
    assert answer.status_code == 200
    return answer.content.decode()


def balances(day: date) -> dict[str, int]:
    return {one.kind: one.balance_nanos for one in trial_balance(day) if one.balance_nanos}


def test_every_day_is_the_sum_of_its_entries_and_zero(customers: list[Customer]) -> None:
    post_some(customers)
    for day in (FIRST - timedelta(days=1), *DAYS, DAYS[-1] + timedelta(days=400)):
        entries = Entry.objects.filter(transaction__accounted_on__lte=day)
        for sign, name in (("gt", "debits_nanos"), ("lt", "credits_nanos")):
            sums = dict(
                entries.filter(**{f"nanos__{sign}": 0})
                .values_list("account__kind")
                .annotate(nanos=Sum("nanos"))
            )
            for one in trial_balance(day):
                assert getattr(one, name) == abs(sums.get(one.kind, 0)), (day, one.kind)
        assert sum(one.balance_nanos for one in trial_balance(day)) == 0
    held = Account.objects.values_list("kind").annotate(nanos=Sum("balance_nanos"))
    assert balances(DAYS[-1]) == {kind: nanos for kind, nanos in held if nanos} != {}


def test_a_days_journal_leads_from_one_trial_balance_to_the_next(customers: list[Customer]) -> None:
    post_some(customers)
    before = Counter(balances(FIRST - timedelta(days=1)))
    for begin in range(0, len(DAYS), 7):
        week = DAYS[begin : begin + 7]
        moved = movements(week[0], week[-1])
        assert sum(row.totals.balance_nanos for row in moved) == 0
        for row in moved:
            before[row.totals.kind] += row.totals.balance_nanos
        assert {kind: nanos for kind, nanos in before.items() if nanos} == balances(week[-1])


def test_a_customers_life_as_an_accountant_reads_it(operator: Client) -> None:
    """Used 123.45 in October, paid 100.00 of it in November; 20.00 of credit bought before."""
    acme = make_customer("Acme Robotics")
    price = make_price("by-the-cent", at=october(1), **MILLION_CENTS)

    def pay(cents: int, now: datetime) -> None:
        record_payment(
            actor=Actor.for_system("tests"), organization_id=acme.id, reason="Bank transfer",
            amount_nanos=cents * CENT_NANOS, idempotency_key=f"{cents}", now=now,
        )  # fmt: skip

    pay(2_000, october(1))
    use_cents(acme, price, 12_345, october(7))
    finish_month()
    close()
    pay(10_000, AFTER + timedelta(days=3))

    def shown(day: str) -> dict[str, str]:
        rows = rows_of(operator.get(TRIAL_BALANCE, {"day": day, "format": "csv"}))
        return {
            row["account_name"]: row["balance_usd"] for row in rows if row["balance_nanos"] != "0"
        }

    assert shown("2026-09-30") == {}
    assert shown("2026-10-06") == {"Cash": "20.00", "Customer balance": "-20.00"}
    assert shown("2026-10-31") == {
        "Cash": "20.00", "Accounts receivable": "103.45", "Revenue": "-123.45",
    }  # fmt: skip
    assert shown("2026-11-04") == {
        "Cash": "120.00", "Accounts receivable": "3.45", "Revenue": "-123.45",
    }  # fmt: skip
    page = text(operator.get(TRIAL_BALANCE, {"day": "2026-11-04"}))
    assert "Debits equal credits" in page and "$120.00" in page and "-$123.45" in page
    for report in ("owed/", "deferred/", "revenue/"):
        assert f'href="/admin/ledger/account/{report}"' in page


def test_both_journals_and_both_forms_say_the_same(
    operator: Client, customers: list[Customer]
) -> None:
    post_some(customers)
    entries = rows_of(operator.get(JOURNAL, SPAN | {"by": "entry", "format": "csv"}))
    assert len(entries) == Entry.objects.count()
    assert sum(int(row["amount_nanos"]) for row in entries) == 0
    days = [row["accounted_on"] for row in entries]
    assert days == sorted(days)
    by_day: Counter[tuple[str, str, str]] = Counter()
    for row in entries:
        nanos = int(row["amount_nanos"])
        side = "debits_nanos" if nanos > 0 else "credits_nanos"
        by_day[row["accounted_on"], row["account"], side] += abs(nanos)
    summed = rows_of(operator.get(JOURNAL, SPAN | {"format": "csv"}))
    assert {
        (row["accounted_on"], row["account"], side): int(row[side])
        for row in summed
        for side in ("debits_nanos", "credits_nanos")
        if row[side] != "0"
    } == by_day
    for way, found in (("entry", entries), ("day", summed)):
        asked = SPAN | {"by": way, "format": "jsonl"}
        assert [
            {name: str(value) for name, value in row.items()}
            for row in rows_of(operator.get(JOURNAL, asked), "jsonl")
        ] == found
        cash = rows_of(operator.get(JOURNAL, asked | {"account": "cash"}), "jsonl")
        assert len(cash) == sum(row["account"] == "cash" for row in found) > 0


def test_a_large_journal_is_read_a_page_at_a_time(
    operator: Client, customers: list[Customer], monkeypatch: pytest.MonkeyPatch
) -> None:
    post_some(customers, 200)
    monkeypatch.setattr("billing.cockpit.general_ledger.FILE_TRANSACTIONS", 30)
    monkeypatch.setattr("billing.cockpit.general_ledger.WINDOW_DAYS", 7)
    for way, pages in (("entry", 7), ("day", 6)):  # 200 transactions, 40 days
        answer = operator.get(JOURNAL, SPAN | {"by": way, "format": "jsonl"})
        chunks = iter(answer.streaming_content)
        lines: list[bytes] = []
        for page in range(pages):
            with CaptureQueriesContext(connection) as asked:
                lines += (chunk := next(chunks)).splitlines()
            questions = [one["sql"] for one in asked if "ledger_entry" in one["sql"]]
            assert len(questions) == 1, page
            ids = [json.loads(line).get("transaction_id") for line in chunk.splitlines()]
            assert len(set(ids)) <= 30
        assert next(chunks, None) is None
        assert len(lines) == len(set(lines))
        assert way == "day" or len(lines) == Entry.objects.count()


def follow(operator: Client, address: str | None) -> list[str]:
    """Return the pages from an address on."""
    pages = []
    while address:
        pages.append(text(operator.get(address)))
        found = re.search(r'<a href="([^"]*)">Next</a>', pages[-1])
        address = found and unescape(found[1])
    return pages


def test_pages_of_entries_leave_nothing_out(
    operator: Client, customers: list[Customer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.cockpit.journal.ENTRIES_MAX", 25)
    post_some(customers)
    asked = f"{JOURNAL}?by=entry&from={SPAN['from']}&to={SPAN['to']}"
    pages = follow(operator, asked)
    assert len(pages) > 5
    shown = [title for page in pages for title in re.findall(r'title="(\$[\d.,]+)"', page)]
    assert len(shown) == Entry.objects.count()
    named = [url for page in pages for url in re.findall(r'/transaction/([^/"]+)/change/', page)]
    assert len(named) == len(set(named)) == 120
    of_days = follow(operator, f"{JOURNAL}?from={SPAN['from']}&to={SPAN['to']}")
    assert len(of_days) == 2
    assert "Page 1 of 2" in of_days[0] and "2026-11-09" in of_days[1]


def test_a_rare_account_is_searched_in_parts(
    operator: Client, customers: list[Customer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.cockpit.journal.SEARCHED_TRANSACTIONS", 20)
    post_some(customers, 100)
    asked = f"{JOURNAL}?by=entry&account=bad_debt&from={SPAN['from']}&to={SPAN['to']}"
    pages = follow(operator, asked)
    assert len(pages) == 5
    assert all("20 transactions were searched" in page for page in pages[:-1])
    shown = [title for page in pages for title in re.findall(r'title="(\$[\d.,]+)"', page)]
    assert len(shown) == Entry.objects.filter(account__kind="bad_debt").count() > 1


def test_names_that_spreadsheets_would_run_are_quoted(
    operator: Client, customers: list[Customer]
) -> None:
    Organization.objects.filter(id=customers[0].id).update(name="=HYPERLINK(1)")
    post_some(customers[:1], 20)
    rows = rows_of(operator.get(JOURNAL, SPAN | {"by": "entry", "format": "csv"}))
    assert {row["organization"] for row in rows} == {"'=HYPERLINK(1)"}
    page = text(operator.get(JOURNAL, SPAN | {"by": "entry"}))
    assert "=HYPERLINK(1)" in page


def test_who_takes_a_file_is_in_the_audit_log(operator: Client, customers: list[Customer]) -> None:
    post_some(customers, 20)
    for page in (TRIAL_BALANCE, JOURNAL):
        text(operator.get(page, SPAN))
    assert not AuditEvent.objects.filter(action="ledger.exported").exists()
    operator.get(TRIAL_BALANCE, {"day": "2026-10-31", "format": "jsonl"})
    operator.get(JOURNAL, SPAN | {"by": "entry", "account": "cash", "format": "csv"})
    first, second = AuditEvent.objects.filter(action="ledger.exported").order_by("id")
    assert (first.target_id, first.target_name) == (
        "trial_balance", "trial-balance-2026-10-31.jsonl",
    )  # fmt: skip
    assert second.target_name == "journal-by-entry-cash-2026-10-01-2026-11-09.csv"
    assert second.details == {
        "first_day": "2026-10-01", "last_day": "2026-11-09", "account": "cash",
    }  # fmt: skip
    assert (first.actor_kind, first.organization_id) == ("user", "")
    assert unclear(first) == unclear(second) == []


def test_outsiders_take_no_file(customers: list[Customer]) -> None:
    member = Client()
    member.force_login(User.objects.create_user("member@acme.test"))
    for page in (TRIAL_BALANCE, f"{JOURNAL}?by=entry"):
        for client in (Client(), member):
            assert client.get(page).status_code == 302
            answer = client.get(f"{page}{'&' if '?' in page else '?'}format=csv")
            assert (answer.status_code, answer.streaming) == (302, False)
    assert not AuditEvent.objects.filter(action="ledger.exported").exists()


def test_few_questions_do_for_a_page(
    operator: Client, customers: list[Customer], django_assert_max_num_queries
) -> None:
    post_some(customers)
    addresses = [TRIAL_BALANCE, JOURNAL, f"{JOURNAL}?by=entry&from=2026-10-01&to=2026-11-09"]
    for address in addresses:
        operator.get(address)
        with django_assert_max_num_queries(10):
            text(operator.get(address))


@pytest.mark.parametrize("value", ["", "x", "-1", "9999-12-31", "0001-01-01", "\u0663"])
def test_senseless_questions_harm_nothing(
    operator: Client, customers: list[Customer], value: str
) -> None:
    post_some(customers, 20)
    names = ("by", "account", "from", "to", "day", "page", "after", "format")
    asked = dict.fromkeys(names, value)
    for page in (TRIAL_BALANCE, JOURNAL):
        text(operator.get(page, asked))
    text(operator.get(JOURNAL, asked | {"by": "entry"}))
    text(operator.get(JOURNAL, {"by": "entry", "from": "2026-10-31", "to": "2026-10-01"}))
    text(operator.get(JOURNAL, {"from": "1970-01-01", "to": "8999-12-31", "page": "99"}))
