"""The ledger's page: one organization's account, read like a bank statement."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.cockpit.causes import known
from billing.cockpit.downloads import CONTENT_TYPES, file_pages
from billing.cockpit.statement import (
    LAST,
    WALKED_MAX,
    Place,
    StatementLine,
    balances_before,
    edges,
    every_line,
    page,
)
from billing.cockpit.statement_files import COLUMNS, records
from billing.cockpit.statement_query import ACCOUNTS, USED, StatementQuery, parse_query, token
from billing.credit.selectors import unposted_nanos
from billing.economics.pages.margin_rows import Money
from billing.ledger.causes import Cause
from billing.ledger.models import Account
from control.admin.base import OperatorPage, row_url
from control.api.streaming import stream_export
from control.organizations.models import Organization
from control.organizations.selectors import organizations

ROWS_MAX = 50
FOUND_MAX = 50
"""Organizations that a search shows."""


class StatementPage(OperatorPage):
    """An account's entries with the balance after each."""

    title = _("Ledger")
    purpose = _(
        "An organization's account as a bank statement: each amount, its cause and the balance"
        " after it. Amounts that fill the account are positive; entries never change."
    )
    permission_required = "ledger.view_account"
    template_name = "cockpit/statement.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the page, or send the statement as a file."""
        query = parse_query(request.GET.dict())
        form = request.GET.get("format", "")
        if form in CONTENT_TYPES and query.organization:
            return _file(request, query, form)
        return super().get(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the statement, or the organizations to choose from."""
        query = parse_query(self.request.GET.dict())
        chosen = Organization.objects.filter(id=query.organization).first()
        accounts = list(Account.objects.filter(organization_id=query.organization))
        shared = {"query": query, "has_books": bool(accounts), "organization": chosen}
        if chosen is None and not accounts:
            return super().get_context_data(**kwargs, **shared, found=_found(query.search))
        return super().get_context_data(
            **kwargs, **shared, name=chosen.name if chosen else query.organization,
            **_statement(query, accounts),
        )  # fmt: skip


def _statement(query: StatementQuery, accounts: list[Account]) -> dict[str, Any]:
    its = [one for one in accounts if _is_asked(one, query)]
    ids = [one.pk for one in its]
    bounds = edges(query.organization, query.range)
    found = page(ids, query.range, bounds=bounds, rows_max=ROWS_MAX, begin=query.begin)
    called = known(query.organization, found.lines)
    kinds = {one.kind for one in accounts}
    return {
        "accounts": {kind: words for kind, words in ACCOUNTS.items() if kind in kinds},
        "account_name": ACCOUNTS[query.account],
        "causes": Cause.choices,
        "rows": [_row(line, query) | {"made": called.made(line)} for line in found.lines],
        "older_url": _address(query, before=token(query, found.older)) if found.older else "",
        "newest_url": _address(query) if query.begin else "",
        "walked_to": found.walked_to,
        "walked_max": f"{WALKED_MAX:,}",
        "edges": [
            (
                gettext("Balance now"),
                _money(Place(LAST, sum(one.balance_nanos for one in its)), query),
            ),
            *_edges(ids, query, bounds),
        ],
        "unposted": Money(unposted_nanos(query.organization)) if query.account in USED else None,
        "ungranted_url": _address(query, grant="") if query.grant else "",
        "csv_url": _address(query, format="csv"),
        "jsonl_url": _address(query, format="jsonl"),
    }


def _edges(
    accounts: list[int], query: StatementQuery, bounds: tuple[int, int]
) -> list[tuple[str, Money]]:
    """Return the balance at the edges of the days asked for."""
    asked = [
        (words % {"day": day}, place)
        for words, day, place in zip(
            (gettext("Before %(day)s"), gettext("After %(day)s")),
            (query.first, query.last),
            bounds,
            strict=True,
        )
        if day is not None
    ]
    if not asked:
        return []
    places = balances_before(accounts, [place for _, place in asked])
    return [(words, _money(place, query)) for (words, _), place in zip(asked, places, strict=True)]


def _is_asked(account: Account, query: StatementQuery) -> bool:
    return account.kind == query.account and query.grant in ("", account.owner_id)


def _money(place: Place, query: StatementQuery) -> Money:
    return Money(place.balance_nanos * query.sign)


def _row(line: StatementLine, query: StatementQuery) -> dict[str, Any]:
    return {
        "line": line,
        "amount": Money(line.nanos * query.sign),
        "is_out": line.nanos * query.sign < 0,
        "balance": Money(line.balance_nanos * query.sign),
        "transaction_url": row_url("admin:ledger_transaction_change", line.transaction_id),
    }


def _found(search: str) -> QuerySet[Organization]:
    rows = organizations().order_by("name", "id")
    if search:
        rows = rows.filter(Q(name__icontains=search) | Q(id=search))
    return rows[:FOUND_MAX]


def _file(request: HttpRequest, query: StatementQuery, form: str) -> HttpResponseBase:
    name = f"statement-{query.account}-{query.organization}.{form}"
    safe = "".join(each for each in name if each.isascii() and (each.isalnum() or each in "-_."))
    pages = (records(lines, query) for lines in _lines(query))
    chunks = file_pages(form, COLUMNS, pages)
    return stream_export(request, chunks, content_type=CONTENT_TYPES[form], name=safe)


def _lines(query: StatementQuery) -> Iterator[list[StatementLine]]:
    accounts = Account.objects.filter(organization_id=query.organization, kind=query.account)
    ids = [one.pk for one in accounts if _is_asked(one, query)]
    bounds = edges(query.organization, query.range)
    return every_line(ids, query.range, bounds=bounds)


def _address(query: StatementQuery, **changes: str) -> str:
    return f"{reverse('admin:cockpit_statement')}?{urlencode(query.parameters(**changes))}"
