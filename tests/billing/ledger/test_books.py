"""The books balance, and the database itself refuses what would unbalance or rewrite them."""

import psycopg
import pytest
from django.db import IntegrityError, ProgrammingError, connection, transaction

from billing.credit.services.budgets import open_balance
from billing.ledger.causes import PAYMENT_TAX, PREPAID_GRANT, USAGE, AccountKind, Cause
from billing.ledger.integrity import CHECKS, run
from billing.ledger.models import Account, Entry, Transaction
from billing.ledger.post import (
    AccountNotInRule,
    Leg,
    Posting,
    SourceAlreadyPosted,
    UnbalancedTransaction,
    post,
    post_all,
    transfer,
)
from billing.ledger.selectors import (
    AccountKey,
    account_ids,
    balance_nanos,
    funding_account,
    owed_by,
    posted_nanos,
)
from tests.fixtures.usage import NOW

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
CASH = AccountKey("org_1", AccountKind.CASH)
TAX = AccountKey("org_1", AccountKind.TAX_PAYABLE)


def taxed(nanos: int = 70, key: str = "1") -> Posting:
    return Posting(PAYMENT_TAX, "org_1", transfer(PAYMENT_TAX, nanos), {"key": key})


@pytest.fixture
def accounts():
    """The ids of two accounts, 70 moved from one to the other."""
    return post_all([taxed()], now=NOW)


@pytest.fixture
def cash(accounts):
    return accounts[CASH]


@pytest.fixture
def tax(accounts):
    return accounts[TAX]


def test_a_posting_moves_both_balances(tax):
    assert balance_nanos("org_1", AccountKind.CASH) == 70
    assert balance_nanos("org_1", AccountKind.CASH, AccountKind.TAX_PAYABLE) == 0
    assert Account.objects.get(id=tax).credit_nanos == 70
    written = Transaction.objects.get()
    assert (written.kind, written.source) == (Cause.TAX, "tax:org_1:1")
    assert written.accounted_on == NOW.date()
    assert all(run(check).holds for check in CHECKS)


def test_many_postings_of_one_account_add_up(accounts):
    """70, then 30 and 5 in one call: 105."""
    assert post_all([taxed(30, "2"), taxed(5, "3")], now=NOW) == accounts
    assert balance_nanos("org_1", AccountKind.CASH) == 105


def test_legs_of_one_account_are_one_entry():
    """50 and 20 of one grant, 0 owed: one debit of 70 and one credit."""
    credit = [Leg(AccountKind.CUSTOMER_BALANCE, nanos, "grant_1") for nanos in (50, 20)]
    rest = [Leg(AccountKind.ACCOUNTS_RECEIVABLE, 0), Leg(AccountKind.REVENUE, -70)]
    post(USAGE, organization_id="org_1", legs=[*credit, *rest], now=NOW)
    assert sorted(Entry.objects.values_list("nanos", flat=True)) == [-70, 70]


def test_a_source_is_posted_once(accounts):
    with pytest.raises(SourceAlreadyPosted, match="tax:org_1:1"):
        post_all([taxed(30, "2"), taxed()], now=NOW)
    assert balance_nanos("org_1", AccountKind.CASH) == 70
    assert (posted_nanos("tax:org_1:1"), posted_nanos("tax:org_1:2")) == (70, None)


def test_a_grant_knows_where_it_came_from(customer):
    open_balance(customer.id)
    legs = transfer(PREPAID_GRANT, 5, "grant_1")
    post(PREPAID_GRANT, organization_id=customer.id, legs=legs, grant="grant_1", now=NOW)
    assert funding_account("grant:grant_1") == AccountKind.CASH


def test_who_has_no_balance_is_given_nothing():
    legs = transfer(PREPAID_GRANT, 5, "grant_1")
    with pytest.raises(IntegrityError, match="org_1 has no balance"):
        post(PREPAID_GRANT, organization_id="org_1", legs=legs, grant="grant_1", now=NOW)


@pytest.mark.parametrize(
    ("legs", "error", "words"),
    [
        ([Leg(AccountKind.CASH, 3), Leg(AccountKind.TAX_PAYABLE, -2)],
         UnbalancedTransaction, "2 legs that sum to 1 nanos"),
        ([], UnbalancedTransaction, "0 legs"),
        ([Leg(AccountKind.CASH, 3), Leg(AccountKind.CASH, -3)], UnbalancedTransaction, "0 legs"),
        ([Leg(AccountKind.CASH, 3), Leg(AccountKind.REVENUE, -3)],
         AccountNotInRule, "credits revenue; wanted tax_payable"),
        ([Leg(AccountKind.CASH, -3), Leg(AccountKind.TAX_PAYABLE, 3)],
         AccountNotInRule, "credits cash"),
        ([Leg(AccountKind.CASH, 3, "grant_1"), Leg(AccountKind.TAX_PAYABLE, -3)],
         AccountNotInRule, "of grant 'grant_1'"),
    ],
)  # fmt: skip
def test_a_posting_that_its_rule_does_not_allow_cannot_be_made(legs, error, words):
    with pytest.raises(error, match=words):
        Posting(PAYMENT_TAX, "org_1", legs, {"key": "1"})


def test_credit_is_posted_to_the_account_of_a_grant():
    legs = [Leg(AccountKind.CUSTOMER_BALANCE, 3), Leg(AccountKind.REVENUE, -3)]
    with pytest.raises(AccountNotInRule, match="of grant ''"):
        Posting(USAGE, "org_1", legs)


def test_an_account_is_opened_once_and_at_zero(cash):
    other = AccountKey("org_2", AccountKind.CASH)
    assert account_ids([CASH, other]) == {CASH: cash}
    rich = Account.objects.create(
        organization_id="org_2", kind=AccountKind.CASH, balance_nanos=10**9
    )
    rich.refresh_from_db()
    assert rich.balance_nanos == 0


def test_who_owes_is_known():
    owing = [Leg(AccountKind.ACCOUNTS_RECEIVABLE, 7), Leg(AccountKind.REVENUE, -7)]
    used_up = [Leg(AccountKind.CUSTOMER_BALANCE, 7, "grant_2"), Leg(AccountKind.REVENUE, -7)]
    post(USAGE, organization_id="org_1", legs=owing, now=NOW)
    post(USAGE, organization_id="org_2", legs=used_up, now=NOW)
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
def test_the_application_may_not_change_what_was_written(cash, tax, change):
    with pytest.raises(ProgrammingError, match="denied"), connection.cursor() as cursor:
        cursor.execute(change)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", [*CHANGES[:5], "TRUNCATE ledger_entry, ledger_transaction"])
def test_not_even_the_owner_changes_what_was_written(owner_connection, cash, tax, change):
    with pytest.raises(psycopg.Error, match=r"never changed|Cannot update or delete|refused"):
        owner_connection.execute(change)


@pytest.mark.django_db(transaction=True)
def test_no_entry_joins_a_transaction_of_the_past(cash, tax):
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


def test_the_database_refuses_a_transaction_that_does_not_sum_to_zero(cash, tax):
    bare = bare_transaction()
    Entry.objects.create(transaction=bare, account_id=cash, nanos=5)
    Entry.objects.create(transaction=bare, account_id=tax, nanos=-4)
    with pytest.raises(IntegrityError, match="sum to 1 nanos"):
        check_constraints_now()


def test_the_database_refuses_a_transaction_without_entries(cash):
    bare_transaction()
    with pytest.raises(IntegrityError, match="has 0 entries"):
        check_constraints_now()


def test_an_entry_moves_money(cash):
    with pytest.raises(IntegrityError, match="entry_moves_money"):
        Entry.objects.create(transaction=bare_transaction(), account_id=cash, nanos=0)


def test_a_transaction_does_not_say_for_itself_who_wrote_it(cash, tax):
    """A later transaction's number, given beforehand, would let entries join it then."""
    forged = Transaction.objects.create(
        source="later", kind=Cause.GRANT, organization_id="org_1", posted_at=NOW,
        accounted_on=NOW.date(), created_xid="99999999999",
    )  # fmt: skip
    for account_id, nanos in ((cash, 5), (tax, -5)):
        Entry.objects.create(transaction=forged, account_id=account_id, nanos=nanos)
    forged.refresh_from_db()
    assert str(forged.created_xid) != "99999999999"
