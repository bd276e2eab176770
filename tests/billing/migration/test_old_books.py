"""The dump of the old books is whole: what it holds adds up to what the old code said of it."""

from collections.abc import Iterator

import pytest

from tests.fixtures.books import Books
from tests.fixtures.old_books import old_books, old_words

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def books(postgres_url: str) -> Iterator[Books]:
    with old_books(postgres_url) as url:
        yield Books(url)


def test_the_events_are_those_that_were_charged_and_waived(books: Books) -> None:
    query = """
        SELECT event_id::text, charged_nanos || ' ' || waived_nanos AS nanos
        FROM metering_usage_event
    """
    events = {row["event_id"]: row["nanos"] for row in books.rows(query)}
    assert events == old_words()["events"]


def test_each_balance_is_what_the_ledger_holds(books: Books) -> None:
    query = """
        SELECT a.organization_id, -sum(e.nanos)::bigint AS nanos
        FROM ledger_entry e JOIN ledger_account a ON a.id = e.account_id
        LEFT JOIN credit_grant g ON g.account_id = a.id
        WHERE a.kind = 'accounts_receivable'
            OR g.id IS NOT NULL AND coalesce(g.expires_at, 'infinity') > %s
        GROUP BY 1
    """
    balances = {
        row["organization_id"]: row["nanos"] for row in books.rows(query, old_words()["now"])
    }
    said = {id: one["balance_nanos"] for id, one in old_words()["organizations"].items()}
    assert balances == said


def test_the_months_of_every_budget_are_there(books: Books) -> None:
    found = books.rows("SELECT budget_id, period, charged_nanos FROM credit_spend")
    spend = {(row["budget_id"], str(row["period"])): row["charged_nanos"] for row in found}
    said = {
        (budget_id, month): nanos
        for organization in old_words()["organizations"].values()
        for budget_id, budget in organization["budgets"].items()
        for month, nanos in budget["charged_nanos"].items()
        if nanos
    }
    assert spend == said


def test_the_old_books_held_but_for_the_lease_that_overran() -> None:
    broken = {check for check, count in old_words()["counterexamples"].items() if count}
    assert broken == {"No lease settled more than it was granted"}
