"""An account with many entries, written by SQL, and an operator who reads it. Runs in a worker."""

import re
import resource
import time
from html import unescape
from urllib.parse import urlencode

import psycopg
from django.db import connection
from django.test import Client
from django.urls import reverse

from billing.ledger.models import Account
from control.accounts.models import User
from control.organizations.models import Organization
from tests.benchmarks.books.deeds.browsing import look
from tests.benchmarks.books.results import Exported, Seen
from tests.benchmarks.failure import BenchmarkFailed

ORGANIZATION = "org_statement"
TRANSACTIONS = """
/* A movement a minute, up to now. */
INSERT INTO ledger_transaction (id, source, kind, organization_id, posted_at, accounted_on)
SELECT 'txn_' || n, 'usage:' || n, 'usage', %(owner)s, at, at::date
FROM generate_series(1, %(count)s::bigint) AS n,
    LATERAL (SELECT now() - interval '1 minute' * (%(count)s - n) AS at) AS moment
"""
ENTRIES = """
/* Each of a dollar or so, from revenue to what is owed. */
INSERT INTO ledger_entry (transaction_id, account_id, nanos)
SELECT 'txn_' || n, account.id,
    (1000000000 + n) * CASE account.kind WHEN 'revenue' THEN -1 ELSE 1 END
FROM generate_series(1, %(count)s::bigint) AS n, ledger_account AS account
WHERE account.organization_id = %(owner)s ORDER BY n, account.id
"""
BALANCES = """
UPDATE ledger_account SET balance_nanos = moved.nanos
FROM (SELECT account_id, sum(nanos) AS nanos FROM ledger_entry GROUP BY 1) AS moved
WHERE ledger_account.id = moved.account_id
"""


def write_entries(superuser_url: str, count: int) -> None:
    """Write an organization with so many movements between two accounts."""
    Organization.objects.create(id=ORGANIZATION, name="Statement")
    for kind in ("revenue", "accounts_receivable"):
        Account.objects.create(organization_id=ORGANIZATION, kind=kind)
    with psycopg.connect(
        superuser_url, autocommit=True, cursor_factory=psycopg.ClientCursor
    ) as root:
        root.execute("SET session_replication_role = replica")
        for statement in (TRANSACTIONS, ENTRIES):
            root.execute(statement, {"owner": ORGANIZATION, "count": count})
        root.execute(BALANCES)
        root.execute("VACUUM ANALYZE")


def browse(visits: int) -> list[Seen]:
    """Visit the first page, an older one and those of some days; return what was seen of each."""
    client = _operator()
    first = _address()
    older = _older(client.get(first).content.decode())
    (day,) = _ask("SELECT accounted_on FROM ledger_transaction WHERE id = 'txn_1000'")
    some_days = {"from": str(day), "to": str(day)}
    pages = {
        "first page": first,
        "second page": older,
        "a day of long ago": _address(**some_days),
        "a cause that no line has": _address(cause="refund"),
    }
    return [look(client, name, url, visits) for name, url in pages.items()]


def export(form: str) -> Exported:
    """Read the whole account as a file; return what that took."""
    began, memory = time.perf_counter(), _memory_bytes()
    reply = _operator().get(_address(format=form))
    first, lines, last = 0.0, 0, b""
    for chunk in reply.streaming_content:  # type: ignore[attr-defined]
        first = first or time.perf_counter() - began
        lines += chunk.count(b"\n")
        last = chunk
    (balance,) = _ask("SELECT balance_nanos FROM ledger_account WHERE kind = 'accounts_receivable'")
    if str(balance).encode() not in last.splitlines()[-1]:
        raise BenchmarkFailed(f"the {form} does not end with the account's balance")
    heads = 1 if form == "csv" else 0
    return Exported(lines - heads, time.perf_counter() - began, first, _memory_bytes() - memory)


def _operator() -> Client:
    user = User.objects.filter(email="operator@example.com").first()
    client = Client()
    client.force_login(user or User.objects.create_superuser("operator@example.com"))
    return client


def _older(page: str) -> str:
    """Return where a page says that older lines are."""
    found = re.search(r'href="([^"]+)">Older<', page)
    if found is None:
        raise BenchmarkFailed("the first page leads to no older lines")
    return unescape(found[1])


def _address(**asked: str) -> str:
    values = {"organization": ORGANIZATION, "account": "accounts_receivable", **asked}
    return f"{reverse('admin:cockpit_statement')}?{urlencode(values)}"


def _memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _ask(statement: str) -> tuple:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()
