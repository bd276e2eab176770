"""The scheduler: one statement at a time, in an order a seed gives; crashes that commit nothing."""

import os
import random

import psycopg
import pytest
from django.db import connection, connections, transaction

from control.organizations.models import Organization
from tests.fixtures.environment import SUPERUSER_URL
from tests.simulation.schedule import Call, Crashed, Scheduler

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
# Other workers' databases are on the same server.
ADVISORY_LOCKS = """
SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
WHERE locktype = 'advisory' AND datname = current_database()
"""


@pytest.fixture
def points():
    return []


@pytest.fixture
def scheduler(points, monkeypatch):
    own = connections.settings["default"]
    options = {name: value for name, value in own["OPTIONS"].items() if name != "pool"}
    monkeypatch.setitem(connections.settings, "default", {**own, "OPTIONS": options})
    url = os.environ[SUPERUSER_URL].rpartition("/")[0]
    with psycopg.connect(f"{url}/{connection.settings_dict['NAME']}", autocommit=True) as monitor:
        scheduler = Scheduler(monitor, note=points.append)
        yield scheduler
        scheduler.close()


@transaction.atomic
def rename(name, to):
    """Two statements and a commit; the row is locked by the first."""
    row = Organization.objects.select_for_update().get(name=name)
    Organization.objects.filter(id=row.id).update(weight=to)
    return row.weight


def call(name, work, crash_at=None):
    return Call(name, work, seed=name, crash_at=crash_at)


def test_calls_interleave_and_the_order_follows_from_the_seed(scheduler, points):
    Organization.objects.create(name="a")
    Organization.objects.create(name="b")
    calls = [call("1", lambda: rename("a", 2)), call("2", lambda: rename("b", 2))]
    orders = []
    for _ in range(2):
        scheduler.run(calls, random.Random(3))
        orders.append([point[:1] for point in points])
        points.clear()
    assert orders[0] == orders[1]
    assert "".join(orders[0]) not in ("1" * 4 + "2" * 4, "2" * 4 + "1" * 4)


def test_a_call_that_waits_for_a_lock_goes_on_when_it_is_free(scheduler):
    Organization.objects.create(name="a", weight=1)
    for seed in range(5):
        Organization.objects.update(weight=1)
        calls = [call("1", lambda: rename("a", 2)), call("2", lambda: rename("a", 3))]
        outcomes = scheduler.run(calls, random.Random(seed))
        assert [one.error for one in outcomes] == [None, None]
        assert sorted(one.value for one in outcomes) in ([1, 2], [1, 3])


@pytest.mark.parametrize(("crash_at", "weight"), [(0, 1), (1, 1), (2, 1), (3, 2)])
def test_a_crash_before_the_commit_leaves_nothing_and_after_it_everything(
    scheduler, crash_at, weight
):
    Organization.objects.create(name="a", weight=1)
    (outcome,) = scheduler.run([call("1", lambda: rename("a", 2), crash_at)], random.Random(0))
    assert outcome.has_crashed
    assert Organization.objects.get().weight == weight


def test_after_a_crash_the_session_is_as_new(scheduler):
    def session():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid(), current_setting('application_name')")
            return cursor.fetchone()

    def dies():
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(1)")
        with connection.cursor() as cursor:
            cursor.execute("SET application_name = 'dead'")
            cursor.execute("SELECT pg_advisory_lock(2)")
            try:
                cursor.execute("SELECT 1")
            finally:
                with pytest.raises(Crashed):
                    cursor.execute("SELECT 2")

    (before,) = scheduler.run([call("1", session)], random.Random(0))
    (died,) = scheduler.run([call("1", dies, 5)], random.Random(0))
    assert died.has_crashed
    locks = scheduler.monitor.execute(ADVISORY_LOCKS)
    assert locks.fetchall() == []
    (after,) = scheduler.run([call("1", session)], random.Random(0))
    assert after.value == before.value


def test_a_deadlock_is_seen(scheduler):
    Organization.objects.create(name="a")
    Organization.objects.create(name="b")

    @transaction.atomic
    def both(first, then):
        rename(first, 2)
        rename(then, 3)

    calls = [call("1", lambda: both("a", "b")), call("2", lambda: both("b", "a"))]
    seen = [scheduler.run(calls, random.Random(seed)) for seed in range(4)]
    assert any(one.was_deadlocked for outcomes in seen for one in outcomes)
