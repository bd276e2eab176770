"""The simulator's eye for locks: what is about to be changed is held, or somebody is told."""

import os
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connection, transaction

from billing.credit.services.budgets import lock_budgets, open_balance
from billing.credit.services.expiries import hold_expiries
from control.organizations.models import Organization
from tests.fixtures.environment import SUPERUSER_URL
from tests.simulation.locks import check_locks, check_wait
from tests.simulation.oracle import BrokenError

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


LEASE = """
INSERT INTO credit_lease (ask_id, budget_id, organization_id, gateway_id, granted_nanos, keep_nanos,
    settled_nanos, granted_at, admits_from, admits_until, lineage)
VALUES ('ask', %s, 'org_0', 'gw0', 5, 5, 0, now(), now(), now() + interval '1 hour', 'era')
"""
WAITS = "SELECT cardinality(pg_blocking_pids(%s)) > 0"


@pytest.fixture
def address():
    return f"{os.environ[SUPERUSER_URL].rpartition('/')[0]}/{connection.settings_dict['NAME']}"


@pytest.fixture
def monitor(address):
    with psycopg.connect(address, autocommit=True) as monitor:
        yield monitor


@pytest.fixture
def balance():
    return open_balance(Organization.objects.create(id="org_0", name="a").id)


def look(monitor, statement, *params):
    connection.ensure_connection()
    check_locks(monitor, connection.connection.info.backend_pid, statement, params)


def test_who_changes_a_balance_has_locked_it(monitor, balance):
    columns = '("organization_id", "funded_nanos", "created_xid") VALUES (%s, %s, DEFAULT)'
    fund = (f'INSERT INTO "ledger_transaction" {columns}', "org_0", 1)
    take = ("DELETE FROM credit_unposted_usage AS unposted USING due", ["org_0"])
    for statement in (fund, take):
        with pytest.raises(BrokenError, match="holds its locks"):
            look(monitor, *statement)
    with transaction.atomic():
        lock_budgets([balance])
        for statement in (fund, take):
            look(monitor, *statement)


def test_who_tells_usage_apart_by_expiries_keeps_them_as_they_are(monitor):
    page = "/* Add a page's charges to what is unposted. */"
    with pytest.raises(BrokenError):
        look(monitor, page)
    with transaction.atomic():
        hold_expiries()
        look(monitor, page)


def test_a_grant_without_an_end_needs_no_lock(monitor, balance):
    insert = 'INSERT INTO "credit_grant" ("id", "expires_at") VALUES (%s, %s)'
    look(monitor, insert, "grant_1", None)
    with pytest.raises(BrokenError):
        look(monitor, insert, "grant_1", "2026-04-01")


@pytest.mark.parametrize("is_late", [True, False])
def test_who_changes_a_lease_has_locked_its_budget_before(monitor, address, balance, is_late):
    """Somebody has the budget; whoever waits for it with a changed lease is late, nobody else."""
    monitor.execute(LEASE, [balance])
    with (
        psycopg.connect(address) as holder, psycopg.connect(address) as waiter,
        ThreadPoolExecutor() as threads,
    ):  # fmt: skip
        holder.execute("SELECT FROM credit_budget WHERE id = %s FOR NO KEY UPDATE", [balance])
        if is_late:
            waiter.execute("UPDATE credit_lease SET keep_nanos = 4 WHERE budget_id = %s", [balance])
        lock = "SELECT FROM credit_budget WHERE id = %s FOR NO KEY UPDATE"
        waiting = threads.submit(waiter.execute, lock, [balance])
        pid = waiter.info.backend_pid
        while not monitor.execute(WAITS, [pid]).fetchone()[0]:
            assert not waiting.done()
        try:
            if is_late:
                with pytest.raises(BrokenError, match="has locked its budget"):
                    check_wait(monitor, pid, "late")
            else:
                check_wait(monitor, pid, "in time")
        finally:
            holder.rollback()
            waiting.result()
            waiter.rollback()
