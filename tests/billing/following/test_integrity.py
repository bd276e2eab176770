"""`check_integrity` is silent about sound books and names every fault planted in them."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO

import msgspec
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from billing.following import integrity
from billing.following.follow import follow
from billing.following.integrity import check_all, check_and_tell, checks_above, next_to_hash
from billing.following.models import Cursor
from billing.ledger.integrity import Check
from billing.metering.ingest import ingest
from billing.metering.models import Day, UsageEvent
from control.alarms.models import AlarmCount
from tests.fixtures.following import catch_up, finish
from tests.fixtures.usage import (
    NOW,
    ask_for,
    broken_promises,
    give_credit,
    make_batch,
    make_event,
    with_lease,
)
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

YESTERDAY = NOW - timedelta(days=1)


@pytest.fixture
def lively(customer, outsider, price):
    """Books of two organizations with grants, leases, a sealed day and an open one with a
    correction; the last of it is not followed yet."""
    for one in (customer, outsider):
        give_credit(one, 10**9, now=YESTERDAY)
        lost = make_event(one, price, outcome="gateway_lost", received_at=YESTERDAY)
        before = make_event(one, price, received_at=YESTERDAY)
        ingest(make_batch([lost, before]), now=YESTERDAY)
        finish(NOW)
        lease = ask_for(one.balance, 400_000)
        event = with_lease(make_event(one, price), lease.lease_id)
        found = msgspec.structs.replace(make_event(one, price), event_id=lost.event_id)
        ingest(make_batch([event, found, make_event(one, price, outcome="timed_out")]), now=NOW)
    catch_up(NOW)
    ingest(make_batch([make_event(customer, price)]), now=NOW)


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
    ("UPDATE credit_grant SET expired_nanos = 1", "What expired of a grant"),
    ("DELETE FROM credit_grant", "Every credit account belongs to a grant"),
    ("UPDATE credit_grant SET closed_at = now()", "No closed grant has money left"),
    ("UPDATE credit_grant SET has_remaining = NOT has_remaining", "A grant is marked as having"),
    ("UPDATE credit_lease SET settled_nanos = granted_nanos + 1", "No lease settled more"),
    ("UPDATE credit_lease SET keep_nanos = keep_nanos - 1", "Every budget's pending"),
    ("UPDATE credit_budget SET pending_nanos = pending_nanos + 1", "Every budget's pending"),
    ("UPDATE credit_budget SET limit_nanos = 5 WHERE kind = 'balance'", "A balance is limited"),
    ("UPDATE organizations_organization SET billing_mode = 'postpaid'", "A balance's credit limit"),
    (
        "DELETE FROM metering_tally; UPDATE credit_budget SET limit_nanos = 5",
        "Nothing is leased beyond a limit",
    ),
    (
        "DELETE FROM metering_tally; INSERT INTO metering_tally (organization_id, kind, day, count)"
        " SELECT DISTINCT organization_id, 'charge_difference', DATE '2026-11-20', 1"
        " FROM credit_budget; UPDATE credit_budget SET limit_nanos = 5",
        "Nothing is leased beyond a limit",
    ),
    (
        "UPDATE credit_budget SET posted_nanos = posted_nanos + 1 WHERE kind = 'balance'",
        "Every balance was charged",
    ),
    (
        "UPDATE credit_budget SET funded_nanos = funded_nanos + 1 WHERE kind = 'balance'",
        "A balance is the ledger's credit",
    ),
    (
        "UPDATE ledger_transaction SET funded_nanos = funded_nanos + 1 WHERE kind = 'usage'",
        "A balance is funded by what",
    ),
    ("DELETE FROM credit_budget WHERE kind = 'key'", "Every month's budget"),
    (
        "UPDATE credit_budget SET posted_nanos = posted_nanos + 1 WHERE kind = 'project'",
        "Every month's budget",
    ),
    (
        "INSERT INTO credit_budget (budget_id, kind, period, organization_id, starts_at, ends_at,"
        " posted_nanos, pending_nanos, funded_nanos) SELECT budget_id || ':day', kind, 'day',"
        " organization_id, date_trunc('day', now(), 'UTC'), date_trunc('day', now(), 'UTC')"
        " + INTERVAL '1 day', 1, 0, 0 FROM credit_budget WHERE kind = 'project'",
        "Every week's and day's budget",
    ),
    ("UPDATE credit_unposted_usage SET nanos = nanos + 1", "What a balance was charged"),
    ("DELETE FROM credit_unposted_usage", "What a balance was charged"),
    ("UPDATE following_cursor SET xid = '0' WHERE name = 'postings'", "What a balance was charged"),
    (
        "UPDATE ledger_transaction SET accounted_on = accounted_on - 1 WHERE kind = 'usage'",
        "The ledger books each sealed day",
    ),
    (
        "UPDATE metering_usage_event SET input_nanos = input_nanos + 1"
        " WHERE accounted_on = '2026-11-21'",
        "All usage of open days is rated",
    ),
    (
        "UPDATE metering_usage_event SET is_waived = NOT is_waived",
        "All usage of open days is charg",
    ),
    (
        "UPDATE metering_usage_event SET rating = 1, output_nanos = 11999",
        "All usage of open days is r",
    ),
    ("UPDATE metering_usage_event SET organization_id = 'x'", "All usage of open days belongs"),
    ("DELETE FROM metering_usage_event", "Every balance was charged"),
    ("DELETE FROM metering_usage_correction", "The hour rollups are the sums"),
    ("UPDATE following_minute_rollup SET output_tokens = output_tokens + 1", "The minute rollups"),
    ("DELETE FROM following_hour_rollup", "The hour rollups are the sums"),
    (
        "UPDATE following_hour_rollup SET input_tokens = 0 WHERE accounted_on = '2026-11-20'",
        "The hour rollups of sealed days",
    ),
    ("UPDATE following_seal SET output_nanos = 1", "Every seal covers"),
    ("UPDATE following_seal SET digest = '\\x00'", "Every seal covers"),
    (
        "DELETE FROM following_seal WHERE id = (SELECT min(id) FROM following_seal)",
        "Every sealed day counts",
    ),
    (
        "UPDATE metering_usage_event SET client_request_id = 'x' WHERE accounted_on = '2026-11-20'",
        "The rows of a sealed day",
    ),
    ("UPDATE metering_supply SET tier = 'priority'", "The rows of a sealed day"),
    (
        "UPDATE metering_usage_event SET ttft_seconds = 0.03 WHERE accounted_on = '2026-11-20'",
        "The rows of a sealed day",
    ),
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
def test_a_planted_fault_is_named(lively, superuser_connection, statement, sentence):
    superuser_connection.execute(statement)
    out = StringIO()
    with pytest.raises(CommandError, match="checks failed"):
        call_command("check_integrity", stdout=out)
    assert f"FAIL  {sentence}" in out.getvalue()
    assert AlarmCount.objects.get(kind="check_failed").count >= 1


def test_every_check_has_a_fault_that_it_finds(lively):
    above = {check.sentence for check in checks_above()}  # tested where they are written
    sentences = [one.sentence for one in check_all() if one.sentence not in above]
    assert [one for one in sentences if not any(one.startswith(name) for _, name in FAULTS)] == []


def test_a_seal_out_of_its_chain_is_found(lively, superuser_connection):
    finish(NOW + timedelta(days=1))
    assert broken_promises() == []
    superuser_connection.execute("DELETE FROM following_seal WHERE day_id = '2026-11-20'")
    assert any(one.startswith("Every seal covers") for one in broken_promises())


def test_sealed_days_are_hashed_in_turn(customer, price):
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    for days in (1, 2):
        finish(NOW + timedelta(days=days))
    first, second = Day.objects.order_by("day").values_list("day", flat=True)
    for minutes, day in enumerate((first, second, first)):
        assert next_to_hash() == day
        check_and_tell(now=NOW + timedelta(days=3, minutes=minutes))


def test_the_checks_hold_no_transaction_id(lively, monkeypatch):
    """Sealed days, late usage and corrections are among what they read."""
    has_id = Check("It has no id", "SELECT 1 WHERE pg_current_xact_id_if_assigned() IS NOT NULL")
    real = checks_above()
    monkeypatch.setattr(integrity, "checks_above", lambda: [*real, has_id])
    assert broken_promises() == []


def test_followers_read_on_while_the_checks_run(
    lively, superuser_connection, customer, price, monkeypatch
):
    """The last check waits for a lock until a follower has read what was ingested meanwhile."""
    waits = Check("It waits", f"SELECT 1 WHERE pg_advisory_xact_lock_shared({GATE}) IS NULL")
    monkeypatch.setattr(integrity, "checks_above", lambda: [waits])
    with ThreadPoolExecutor(max_workers=1) as pool:
        superuser_connection.execute("SELECT pg_advisory_lock(%s)", [GATE])
        try:
            running = pool.submit(check_alone)
            wait_until(
                lambda: superuser_connection.execute(WAITING).fetchone() == (1,), what="the checks"
            )
            ingest(make_batch([make_event(customer, price)]), now=NOW)
            written = max(int(one.ingested_xid) for one in UsageEvent.objects.all())
            wait_until(
                lambda: follow("rollups", now=NOW) and cursor_xid() > written, what="the follower"
            )
            assert not running.done()
        finally:
            superuser_connection.execute("SELECT pg_advisory_unlock(%s)", [GATE])
        assert all(one.holds for one in running.result(timeout=60))


GATE = 0x67_6174_65
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND wait_event = 'advisory' AND datname = current_database()
"""


def check_alone() -> list:
    """Run every check on a connection of its own, which ends with it."""
    try:
        return check_all()
    finally:
        connection.close()


def cursor_xid() -> int:
    return int(Cursor.objects.get(name="rollups").xid)
