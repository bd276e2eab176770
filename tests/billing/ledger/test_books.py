"""The books balance, and the database itself refuses what would unbalance or rewrite them."""

import pytest
from django.db import Error, IntegrityError, connection, transaction

from billing.ledger.models import Account, AccountKind, Entry, Transaction, TransactionKind
from billing.ledger.selectors import AccountKey, account_ids, balance_nanos
from billing.ledger.services import Posting, Side, UnbalancedError, open_account, post
from serving.contract.ids import new_id
from tests.support.usage import NOW, broken_promises

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def movement(debit, credit, nanos=70, source="test:1"):
    sides = (Side(debit, nanos), Side(credit, -nanos))
    return Posting(new_id(), source, TransactionKind.GRANT, "org_1", sides)


@pytest.fixture
def cash():
    return open_account("org_1", AccountKind.CASH)


@pytest.fixture
def revenue():
    return open_account("org_1", AccountKind.REVENUE)


def test_a_posting_moves_both_balances(cash, revenue):
    post([movement(cash, revenue)], now=NOW)
    assert balance_nanos("org_1", AccountKind.CASH) == 70
    assert Account.objects.get(id=revenue).credit_nanos == 70
    assert broken_promises() == []


def test_a_source_is_posted_once(cash, revenue):
    post([movement(cash, revenue)], now=NOW)
    with pytest.raises(IntegrityError), transaction.atomic():
        post([movement(cash, revenue)], now=NOW)
    assert balance_nanos("org_1", AccountKind.CASH) == 70


def test_an_unbalanced_posting_cannot_be_made(cash, revenue):
    with pytest.raises(UnbalancedError, match="sums to 1 nanos"):
        Posting(new_id(), "test:2", TransactionKind.GRANT, "o", (Side(cash, 3), Side(revenue, -2)))


def test_an_account_is_opened_once(cash):
    key = AccountKey("org_1", AccountKind.CASH)
    assert open_account(*key) == cash
    assert account_ids([key, AccountKey("org_2", AccountKind.CASH)]) == {key: cash}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger_entry SET nanos = nanos * 2",
        "DELETE FROM ledger_entry",
        "UPDATE ledger_transaction SET organization_id = 'org_2'",
        "DELETE FROM ledger_transaction",
        "DELETE FROM ledger_account",
    ],
)
def test_nothing_that_was_written_can_be_changed(cash, revenue, change):
    post([movement(cash, revenue)], now=NOW)
    with pytest.raises(Error, match="never changed"), connection.cursor() as cursor:
        cursor.execute(change)


def bare_transaction():
    return Transaction.objects.create(
        source="bare", kind=TransactionKind.GRANT, organization_id="org_1", posted_at=NOW
    )


def check_constraints_now():
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
