"""Fixtures for every tier; the environment is set before Django's settings load."""

import gc
import os
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from pytest_django import DjangoDbBlocker

from tests.fixtures import database, environment, postgres
from tests.fixtures.leftovers import leftover_processes
from tests.fixtures.prepared_home import remove_prepared_home
from tests.fixtures.second_factor import proved_with_forced_logins

# A busy machine is slow at making examples; that says nothing of what they are for.
settings.register_profile("default", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("default")
pytest_plugins = ("tests.fixtures.time_report",)
proved_with_forced_logins()


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """A PostgreSQL that answers, as its superuser: the session's own, or the one given."""
    return postgres.ensure_running()


@pytest.fixture(scope="session")
def django_db_setup(
    postgres_url: str, django_test_environment: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """The test database, in place of pytest-django's own: a copy of what the product prepares."""
    suffix = os.environ.get("PYTEST_XDIST_WORKER", "")
    with database.made(postgres_url, suffix=suffix, unblock=django_db_blocker.unblock):
        yield


@pytest.fixture
def owner_connection(transactional_db: None) -> Iterator[psycopg.Connection]:
    """The test database as the owner of its tables, whom triggers alone can refuse a change.

    It sees what is committed, so it needs a test with `transaction=True`.
    """
    with psycopg.connect(database.owner_url(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def superuser_connection(transactional_db: None) -> Iterator[psycopg.Connection]:
    """The test database as the server's superuser, past triggers: to plant faults in the books.

    It sees what is committed, so it needs a test with `transaction=True`.
    """
    with psycopg.connect(database.superuser_url(), autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        yield connection


def pytest_collection_finish() -> None:
    """Collect garbage less often, and never what was collected for the run: thousands of items."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what the session started, and fail it when a process is left over."""
    database.drop_template()
    remove_prepared_home()
    postgres.stop()
    if environment.is_own_session() and (left := leftover_processes()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        lines = [f"left over: {process.pid} {' '.join(process.cmdline())}" for process in left]
        session.config.get_terminal_writer().line("\n" + "\n".join(lines), red=True)
