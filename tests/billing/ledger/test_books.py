"""The books balance, and the database itself refuses what would unbalance or rewrite them."""

import psycopg
import pytest
from django.db import IntegrityError, ProgrammingError, connection, transaction

from billing.ledger.integrity import CHECKS, run
from billing.ledger.models import Account, AccountKind, Cause, Entry, Transaction
from billing.ledger.selectors import (
    AccountKey,
    account_ids,
    balance_nanos,
    funding_account,
    owed_by,
    posted_nanos,
)
from billing.ledger.services import Posting, Side, UnbalancedError, open_account, post
from serving.contract.ids import new_id
from tests.fixtures.usage import NOW

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def movement(debit: int, credit: int, nanos: int = 70, source: str = "test:1") -> Posting:
    sides = (Side(debit, nanos), Side(credit, -nanos))
    return Posting(new_id(), source, Cause.GRANT, "org_1", sides)


@pytest.fixture
def cash():
    return open_account("org_1", AccountKind.CASH)


@pytest.fixture
def revenue():
    return open_account("org_1", AccountKind.REVENUE)


def test_a_posting_moves_both_balances(cash, revenue):
    post([movement(cash, revenue)], now=NOW)
    assert balance_nanos("org_1", AccountKind.CASH) == 70
    assert balance_nanos("org_1", AccountKind.CASH, AccountKind.REVENUE) == 0
    assert Account.objects.get(id=revenue).credit_nanos == 70
    assert Transaction.objects.get().accounted_on == NOW.date()
    assert all(run(check).holds for check in CHECKS)


def test_many_postings_of_one_account_add_up(cash, revenue):
    """70 and 30 in one call, 5 in another: 105."""
    post([movement(cash, revenue), movement(cash, revenue, 30, "test:2")], now=NOW)
    post([movement(cash, revenue, 5, "test:3")], now=NOW)
    assert balance_nanos("org_1", AccountKind.CASH) == 105


def test_a_source_is_posted_once(cash, revenue):
    post([movement(cash, revenue)], now=NOW)
    with pytest.raises(IntegrityError), transaction.atomic():
        post([movement(cash, revenue)], now=NOW)
    assert balance_nanos("org_1", AccountKind.CASH) == 70
    assert (posted_nanos("test:1"), posted_nanos("test:2")) == (70, None)
    assert funding_account("test:1") == cash


def test_an_unbalanced_posting_cannot_be_made(cash, revenue):
    with pytest.raises(UnbalancedError, match="sums to 1 nanos"):
        Posting(new_id(), "test:2", Cause.GRANT, "o", (Side(cash, 3), Side(revenue, -2)))


def test_an_account_is_opened_once_and_at_zero(cash):
    key = AccountKey("org_1", AccountKind.CASH)
    assert open_account(*key) == cash
    assert account_ids([key, AccountKey("org_2", AccountKind.CASH)]) == {key: cash}
    rich = Account.objects.create(
        organization_id="org_2", kind=AccountKind.CASH, balance_nanos=10**9
    )
    rich.refresh_from_db()
    assert rich.balance_nanos == 0


def test_who_owes_is_known(cash):
    for owner, nanos in (("org_1", 7), ("org_2", -7)):
        owed = open_account(owner, AccountKind.ACCOUNTS_RECEIVABLE)
        sides = (Side(owed, nanos), Side(open_account(owner, AccountKind.REVENUE), -nanos))
        post([Posting(new_id(), owner, Cause.USAGE, owner, sides)], now=NOW)
    assert owed_by(["org_1", "org_2", "org_3"]) == {"org_1": 7}


CHANGES = [
    "UPDATE ledger_entry SET nanos = nanos * 2",
    "DELETE FROM ledger_entry",
    "UPDATE ledger_transaction SET organization_id = 'org_2'",
    "DELETE FROM ledger_transaction",
    "DELETE FROM ledger_account",
    "UPDATE ledger_account SET balance_nanos = 0",
    "TRUNCATE ledger_entry",
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_application_may_not_change_what_was_written(cash, revenue, change):
    post([movement(cash, revenue)], now=NOW)
    with pytest.raises(ProgrammingError, match="denied"), connection.cursor() as cursor:
        cursor.execute(change)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", [*CHANGES[:5], "TRUNCATE ledger_entry, ledger_transaction"])
def test_not_even_the_owner_changes_what_was_written(owner_connection, cash, revenue, change):
    post([movement(cash, revenue)], now=NOW)
    with pytest.raises(psycopg.Error, match=r"never changed|Cannot update or delete|refused"):
        owner_connection.execute(change)


@pytest.mark.django_db(transaction=True)
def test_no_entry_joins_a_transaction_of_the_past(cash, revenue):
    post([movement(cash, revenue)], now=NOW)
    past = Transaction.objects.get()
    with pytest.raises(IntegrityError, match="sealed"), transaction.atomic():
        Entry.objects.create(transaction=past, account_id=cash, nanos=5)
    assert balance_nanos("org_1", AccountKind.CASH) == 70


def bare_transaction() -> Transaction:
    return Transaction.objects.create(
        source="bare", kind=Cause.GRANT, organization_id="org_1", posted_at=NOW,
        accounted_on=NOW.date(),
    )  # fmt: skip


def check_constraints_now() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def test_the_database_refuses_a_transaction_that_does_not_sum_to_zero(cash, revenue):
    bare = bare_transaction()
    Entry.objects.create(transaction=bare, account_id=cash, nanos=5)
    Entry.objects.create(transaction=bare, account_id=revenue, nanos=-4)
    with pytest.raises(IntegrityError, match="sum to 1 nanos"):
        check_constraints_now()


def test_the_database_refuses_a_transaction_without_entries(cash):
    bare_transaction()
    with pytest.raises(IntegrityError, match="has 0 entries"):
        check_constraints_now()


def test_an_entry_moves_money(cash):
    with pytest.raises(IntegrityError, match="entry_moves_money"):
        Entry.objects.create(transaction=bare_transaction(), account_id=cash, nanos=0)


def test_a_transaction_does_not_say_for_itself_who_wrote_it(cash, revenue):
    """A later transaction's number, given beforehand, would let entries join it then."""
    forged = Transaction.objects.create(
        source="later", kind=Cause.GRANT, organization_id="org_1", posted_at=NOW,
        accounted_on=NOW.date(), created_xid="99999999999",
    )  # fmt: skip
    for account_id, nanos in ((cash, 5), (revenue, -5)):
        Entry.objects.create(transaction=forged, account_id=account_id, nanos=nanos)
    forged.refresh_from_db()
    assert str(forged.created_xid) != "99999999999"
