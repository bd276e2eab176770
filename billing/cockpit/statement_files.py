"""A statement as a file, in English: all of its lines, the oldest first."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from django.conf import settings
from django.utils.translation import override

from billing.cockpit.causes import known
from billing.cockpit.statement import StatementLine
from billing.cockpit.statement_query import ACCOUNTS, StatementQuery
from billing.reading.exports import plain_dollars, utc_text
from control.api.streaming import SignedAmount, csv_bytes

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


DOLLARS = ("amount_usd", "balance_usd")


def csv_pages(pages: Iterable[list[StatementLine]], query: StatementQuery) -> Iterator[bytes]:
    """Yield lines as CSV, their header first."""
    yield csv_bytes([COLUMNS])
    for page in pages:
        yield csv_bytes(
            [SignedAmount(cell) if name in DOLLARS else cell for name, cell in record.items()]
            for record in records(page, query)
        )


def jsonl_pages(pages: Iterable[list[StatementLine]], query: StatementQuery) -> Iterator[bytes]:
    """Yield lines as JSON Lines."""
    for page in pages:
        yield msgspec.json.Encoder().encode_lines(list(records(page, query)))


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
