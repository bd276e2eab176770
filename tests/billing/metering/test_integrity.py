"""`check_integrity` is silent about sound books and names every fault planted in them."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from billing.metering.ingest import ingest
from tests.support.usage import (
    NOW,
    ask_for,
    broken_promises,
    give_credit,
    make_batch,
    make_event,
    with_lease,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture
def lively(customer, outsider, price):
    """Books with grants, leases and usage of two organizations."""
    for one in (customer, outsider):
        give_credit(one, 1_000_000)
        lease = ask_for(one.id, 400_000)
        failed = make_event(one, price, outcome="engine_failed")
        event = with_lease(make_event(one, price), lease.lease_id)
        ingest(make_batch([event, failed]), now=NOW)


def plant(statement):
    """Change what nobody may: triggers are off for one statement."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(statement)
        cursor.execute("SET session_replication_role = DEFAULT")


FAULTS = [
    (
        "UPDATE ledger_entry SET nanos = nanos + 1 WHERE id = (SELECT min(id) FROM ledger_entry)",
        "The ledger sums to zero",
    ),
    ("UPDATE ledger_account SET balance_nanos = balance_nanos + 1", "Every cached balance"),
    (
        "DELETE FROM ledger_entry WHERE transaction_id ="
        " (SELECT min(id) FROM ledger_transaction WHERE kind = 'usage')",
        "Every transaction has two entries",
    ),
    (
        "UPDATE ledger_transaction SET organization_id = 'org_other'",
        "No transaction moves money between organizations",
    ),
    (
        "UPDATE ledger_account SET balance_nanos = 5 WHERE kind = 'customer_balance'",
        "No credit is spent twice",
    ),
    ("UPDATE credit_grant SET amount_nanos = amount_nanos + 1", "Every grant was posted once"),
    ("DELETE FROM credit_grant", "Every credit account belongs to a grant"),
    ("UPDATE credit_grant SET expired_at = now()", "No closed grant has money left"),
    ("UPDATE credit_lease SET settled_nanos = granted_nanos + 1", "No lease settled more"),
    ("UPDATE credit_lease SET settled_nanos = settled_nanos - 1", "Every lease settled exactly"),
    ("DELETE FROM credit_spend", "The monthly spend"),
    ("UPDATE credit_spend SET charged_nanos = charged_nanos + 1", "The monthly spend"),
    (
        "UPDATE metering_usage_event SET charged_nanos = charged_nanos + 1 WHERE charged_nanos > 0",
        "Every event is charged or waived by its outcome, at its price",
    ),
    (
        "UPDATE metering_usage_event SET outcome = 'engine_failed'",
        "Every event is charged or waived by its outcome, at its price",
    ),
    (
        "UPDATE metering_usage_event SET transaction_id = 'x' WHERE charged_nanos > 0",
        "Every charge is booked once",
    ),
    ("DELETE FROM metering_usage_event", "Every charge is booked once"),
    (
        "UPDATE metering_minute_rollup SET output_tokens = output_tokens + 1",
        "The minute rollups are the sums of the events",
    ),
    ("DELETE FROM metering_hour_rollup", "The hour rollups are the sums of the events"),
]


def test_sound_books_pass(lively):
    out = StringIO()
    call_command("check_integrity", stdout=out)
    lines = out.getvalue().splitlines()
    assert all(line.startswith("ok  ") for line in lines[:-1])
    assert lines[-1] == f"all {len(lines) - 1} checks hold"


def test_empty_books_pass():
    assert broken_promises() == []


@pytest.mark.parametrize(("statement", "sentence"), FAULTS)
def test_a_planted_fault_is_named(lively, statement, sentence):
    plant(statement)
    out = StringIO()
    with pytest.raises(CommandError, match="checks failed"):
        call_command("check_integrity", stdout=out)
    assert f"FAIL  {sentence}" in out.getvalue()
