"""A statement as a file, in English: all of its lines, the oldest first."""

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.utils.translation import override

from billing.cockpit.causes import known
from billing.cockpit.statement import StatementLine
from billing.cockpit.statement_query import ACCOUNTS, StatementQuery
from billing.reading.exports import plain_dollars, utc_text

COLUMNS = (
    "entry_id",
    "posted_at",
    "accounted_on",
    "organization_id",
    "account",
    "cause",
    "what",
    "words",
    "amount_nanos",
    "amount_usd",
    "balance_nanos",
    "balance_usd",
    "transaction_id",
    "source",
    "grant_id",
)
"""What a line is in a file. Amounts are positive where they fill the account."""


def records(page: list[StatementLine], query: StatementQuery) -> Iterator[dict[str, Any]]:
    """Yield lines under the names of COLUMNS."""
    called = known(query.organization, page)
    for line in page:
        with override(settings.LANGUAGE_CODE):
            made, account = called.made(line), str(ACCOUNTS[query.account])
        amount, balance = line.nanos * query.sign, line.balance_nanos * query.sign
        values = (
            line.entry_id,
            utc_text(line.posted_at),
            line.accounted_on.isoformat(),
            query.organization,
            account,
            line.cause,
            made.title,
            made.words,
            amount,
            plain_dollars(amount),
            balance,
            plain_dollars(balance),
            line.transaction_id,
            line.source,
            line.owner_id,
        )
        yield dict(zip(COLUMNS, values, strict=True))
