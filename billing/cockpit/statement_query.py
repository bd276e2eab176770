"""The question of the ledger's page, held whole in its URL."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from django.core import signing
from django.utils.translation import gettext_lazy as _

from billing.cockpit.statement import Place, Range
from billing.ledger.causes import DEBIT_KINDS, USAGE, AccountKind, Cause
from billing.reading.days import day_of, midnight

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

SALT = "cockpit.statement"
ACCOUNTS: dict[str, "StrOrPromise"] = {
    AccountKind.ACCOUNTS_RECEIVABLE: _("Owed by the customer"),
    AccountKind.CUSTOMER_BALANCE: _("Prepaid credit"),
    AccountKind.PROMOTIONAL_CREDIT: _("Promotional credit"),
    AccountKind.CASH: _("Cash received"),
    AccountKind.REVENUE: _("Revenue"),
    AccountKind.TAX_PAYABLE: _("Tax payable"),
    AccountKind.BREAKAGE: _("Expired prepayments"),
    AccountKind.ROUNDING: _("Rounding of invoices"),
    AccountKind.PROMOTION_EXPENSE: _("Promotions given"),
    AccountKind.BAD_DEBT: _("Debts written off"),
}
"""What the accounts are called, those first that are looked at most."""
USED = (*USAGE.debits, *USAGE.credits)
"""Accounts that usage moves once it is posted."""


@dataclass(frozen=True, slots=True)
class StatementQuery:
    """One organization's account; empty means the usual. Days are UTC, both included."""

    organization: str = ""
    search: str = ""
    account: str = AccountKind.ACCOUNTS_RECEIVABLE
    grant: str = ""
    first: date | None = None
    last: date | None = None
    cause: str = ""
    begin: Place | None = None

    @property
    def sign(self) -> int:
        """What turns debits into what fills the account."""
        return 1 if self.account in DEBIT_KINDS else -1

    @property
    def range(self) -> Range:
        """What of the statement is asked for."""
        return Range(
            start=None if self.first is None else midnight(self.first),
            end=None if self.last is None else midnight(self.last + timedelta(days=1)),
            cause=self.cause,
        )

    def parameters(self, **changes: str) -> dict[str, str]:
        """Return the URL's parameters with `changes`, empty ones left out. A place is not among
        them: whoever changes a filter begins anew."""
        values = {
            "organization": self.organization,
            "account": self.account,
            "grant": self.grant,
            "from": "" if self.first is None else self.first.isoformat(),
            "to": "" if self.last is None else self.last.isoformat(),
            "cause": self.cause,
        } | changes
        return {name: value for name, value in values.items() if value}


def parse_query(parameters: Mapping[str, str]) -> StatementQuery:
    """Read the question from a URL; what makes no sense falls back to the usual."""
    account = parameters.get("account", "")
    cause = parameters.get("cause", "")
    query = StatementQuery(
        organization=parameters.get("organization", ""),
        search=parameters.get("q", "").strip(),
        account=account if account in ACCOUNTS else AccountKind.ACCOUNTS_RECEIVABLE,
        grant=parameters.get("grant", ""),
        first=day_of(parameters.get("from", "")),
        last=day_of(parameters.get("to", "")),
        cause=cause if cause in Cause.values else "",
    )
    return replace(query, begin=_place(query, parameters.get("before", "")))


def token(query: StatementQuery, place: Place) -> str:
    """Return a place for a URL: signed for this account alone, since it says a balance."""
    return signing.dumps([place.entry_id, place.balance_nanos], salt=_salt(query))


def _salt(query: StatementQuery) -> str:
    return ":".join((SALT, query.organization, query.account, query.grant))


def _place(query: StatementQuery, text: str) -> Place | None:
    try:
        values: Any = signing.loads(text, salt=_salt(query))
    except signing.BadSignature:
        return None
    return Place(*values)
