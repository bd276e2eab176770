"""The journal of all organizations: what moved by account and day, or entry by entry."""

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import groupby
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.translation import gettext_lazy as _

from billing.cockpit.downloads import CONTENT_TYPES, Records, account_names, ledger_file
from billing.cockpit.general_ledger import (
    SEARCHED_TRANSACTIONS,
    DayMovements,
    JournalEntry,
    every_entry,
    journal_section,
    movements,
    windows,
)
from billing.cockpit.journal_query import DAY, ENTRY, JournalQuery, parse_query
from billing.economics.pages.margin_rows import Money
from billing.ledger.causes import AccountKind, Cause
from billing.reading.exports import plain_dollars, utc_text
from control.admin.base import OperatorPage, row_url

ENTRIES_MAX = 50
TRANSACTIONS_MAX = 50
DAY_COLUMNS = (
    "accounted_on",
    "account",
    "account_name",
    "account_class",
    "entries",
    "debits_nanos",
    "debits_usd",
    "credits_nanos",
    "credits_usd",
)
"""What an account's day is in a file."""
ENTRY_COLUMNS = (
    "accounted_on",
    "posted_at",
    "transaction_id",
    "entry_id",
    "organization_id",
    "organization",
    "cause",
    "source",
    "account",
    "account_name",
    "grant_id",
    "amount_nanos",
    "debit_usd",
    "credit_usd",
)
"""What an entry is in a file. `amount_nanos` is above zero for a debit, below it for a credit."""


class JournalPage(OperatorPage):
    """Movements of the ledger in a span of days."""

    title = _("Journal")
    purpose = _(
        "What was debited and credited in a span of UTC days, of all organizations together: added"
        " up by account and day, or entry by entry."
    )
    permission_required = "ledger.view_account"
    template_name = "cockpit/journal.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the page, or send the journal as a file."""
        query, form = parse_query(request.GET.dict()), request.GET.get("format", "")
        if form in CONTENT_TYPES:
            return _file(request, query, form)
        return super().get(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return a page of the journal."""
        query = parse_query(self.request.GET.dict())
        return super().get_context_data(
            **kwargs,
            query=query,
            ways=((DAY, _("By account and day")), (ENTRY, _("Entry by entry"))),
            chart=AccountKind.choices,
            csv_url=query.address(format="csv"),
            jsonl_url=query.address(format="jsonl"),
            **(_by_entry(query) if query.way == ENTRY else _by_day(query)),
        )


def _by_day(query: JournalQuery) -> dict[str, Any]:
    parts = windows(query.first, query.last)
    if not parts:
        return {"days": []}
    page = Paginator(parts, 1).get_page(query.page)
    first, last = page.object_list[0]
    rows = movements(first, last, query.account)
    days = [(day, [_day_row(row, query) for row in its]) for day, its in groupby(rows, _day_of)]
    return {
        "days": days,
        "page": page,
        "window": (first, last),
        "debits": Money(sum(row.totals.debits_nanos for row in rows)),
        "credits": Money(sum(row.totals.credits_nanos for row in rows)),
        "previous_url": query.address(page=str(page.number - 1)) if page.has_previous() else "",
        "next_url": query.address(page=str(page.number + 1)) if page.has_next() else "",
    }


def _day_of(row: DayMovements) -> date:
    return row.accounted_on


def _day_row(row: DayMovements, query: JournalQuery) -> dict[str, Any]:
    day, kind = row.accounted_on.isoformat(), row.totals.kind
    return {
        "name": kind.label,
        "url": query.address(**{"by": ENTRY, "account": kind, "from": day, "to": day}),
        "count": f"{row.entry_count:,}",
        "debits": Money(row.totals.debits_nanos),
        "credits": Money(row.totals.credits_nanos),
    }


def _by_entry(query: JournalQuery) -> dict[str, Any]:
    most = SEARCHED_TRANSACTIONS if query.account else TRANSACTIONS_MAX
    section = journal_section(
        query.first, query.last, query.account, begin=query.begin, transactions_max=most,
        entries_max=ENTRIES_MAX,
    )  # fmt: skip
    is_short = len(section.entries) < ENTRIES_MAX and bool(query.account)
    return {
        "transactions": [
            _transaction(list(its)) for _, its in groupby(section.entries, _transaction_of)
        ],
        "searched_to": section.next.accounted_on if section.next and is_short else None,
        "searched_max": f"{most:,}",
        "first_url": query.address() if query.begin else "",
        "next_url": query.address(after=query.token(section.next)) if section.next else "",
    }


def _transaction_of(entry: JournalEntry) -> str:
    return entry.transaction_id


def _transaction(entries: Sequence[JournalEntry]) -> dict[str, Any]:
    first = entries[0]
    return {
        "first": first,
        "cause": Cause(first.cause).label,
        "organization": first.organization_name or first.organization_id,
        "url": row_url("admin:ledger_transaction_change", first.transaction_id),
        "entries": [
            {
                "name": AccountKind(entry.account).label,
                "debit": Money(entry.nanos) if entry.nanos > 0 else None,
                "credit": Money(-entry.nanos) if entry.nanos < 0 else None,
            }
            for entry in entries
        ],
    }


def _file(request: HttpRequest, query: JournalQuery, form: str) -> HttpResponseBase:
    is_entries = query.way == ENTRY
    kind = f"-{query.account}" if query.account else ""
    details = {"first_day": query.first.isoformat(), "last_day": query.last.isoformat()}
    return ledger_file(
        request, form, ENTRY_COLUMNS if is_entries else DAY_COLUMNS,
        _entry_records(query) if is_entries else _day_records(query), report="journal",
        name=f"journal-by-{query.way}{kind}-{query.first}-{query.last}",
        details=details | ({"account": query.account} if query.account else {}),
    )  # fmt: skip


def _day_records(query: JournalQuery) -> Iterator[Records]:
    names = account_names()
    for first, last in windows(query.first, query.last):
        rows = movements(first, last, query.account)
        yield [_day_record(row, names[row.totals.kind]) for row in rows]


def _day_record(row: DayMovements, names: tuple[str, str]) -> dict[str, Any]:
    totals = row.totals
    values = (
        row.accounted_on.isoformat(),
        str(totals.kind),
        *names,
        row.entry_count,
        totals.debits_nanos,
        plain_dollars(totals.debits_nanos),
        totals.credits_nanos,
        plain_dollars(totals.credits_nanos),
    )
    return dict(zip(DAY_COLUMNS, values, strict=True))


def _entry_records(query: JournalQuery) -> Iterator[Records]:
    names = account_names()
    for entries in every_entry(query.first, query.last, query.account):
        yield [_entry_record(entry, names[entry.account][0]) for entry in entries]


def _entry_record(entry: JournalEntry, name: str) -> dict[str, Any]:
    values = (
        entry.accounted_on.isoformat(),
        utc_text(entry.posted_at),
        entry.transaction_id,
        entry.entry_id,
        entry.organization_id,
        entry.organization_name,
        entry.cause,
        entry.source,
        entry.account,
        name,
        entry.grant_id,
        entry.nanos,
        plain_dollars(entry.nanos) if entry.nanos > 0 else "",
        plain_dollars(-entry.nanos) if entry.nanos < 0 else "",
    )
    return dict(zip(ENTRY_COLUMNS, values, strict=True))
