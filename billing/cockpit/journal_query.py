"""The question of the journal's page, held whole in its URL."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any
from urllib.parse import urlencode

from django.core import signing
from django.urls import reverse
from django.utils import timezone

from billing.cockpit.general_ledger import JournalPosition
from billing.ledger.causes import AccountKind
from billing.reading.days import day_of

SALT = "cockpit.journal"
DAY, ENTRY = "day", "entry"
"""The two ways to read the journal."""


@dataclass(frozen=True, slots=True)
class JournalQuery:
    """A span of UTC days, both included, and one account or, if empty, all of them.

    `page` counts parts of the span from 1; `begin` is a position among its entries.
    """

    first: date
    last: date
    way: str = DAY
    account: str = ""
    page: str = ""
    begin: JournalPosition | None = None

    def address(self, **changes: str) -> str:
        """Return the URL of this question with `changes`, from its first page on."""
        values = {
            "by": self.way,
            "account": self.account,
            "from": self.first.isoformat(),
            "to": self.last.isoformat(),
        } | changes
        asked = urlencode({name: value for name, value in values.items() if value})
        return f"{reverse('admin:cockpit_journal')}?{asked}"

    def token(self, position: JournalPosition) -> str:
        """Return a position for a URL, signed, so that it is one of ours."""
        values = (position.accounted_on, position.posted_at)
        texts = [*(value.isoformat() for value in values), position.transaction_id]
        return signing.dumps(texts, salt=SALT)


def parse_query(parameters: Mapping[str, str]) -> JournalQuery:
    """Read the question from a URL: this month if it names no days. Values that make no sense
    count as absent."""
    today = timezone.now().date()
    last = day_of(parameters.get("to", "")) or today
    account, way = parameters.get("account", ""), parameters.get("by", "")
    query = JournalQuery(
        first=day_of(parameters.get("from", "")) or last.replace(day=1),
        last=last,
        way=way if way in (DAY, ENTRY) else DAY,
        account=account if account in AccountKind.values else "",
        page=parameters.get("page", ""),
    )
    return replace(query, begin=_position(parameters.get("after", "")))


def _position(text: str) -> JournalPosition | None:
    try:
        values: Any = signing.loads(text, salt=SALT)
    except signing.BadSignature:
        return None
    day, moment, transaction_id = values
    return JournalPosition(date.fromisoformat(day), datetime.fromisoformat(moment), transaction_id)
