"""Fixtures for every tier; the environment is set before Django's settings load."""

import pytest

import tests.support.environment  # noqa: F401
from tests.support import postgres


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """A PostgreSQL that answers: the session's own, or DATABASE_URL where that was given."""
    return postgres.ensure_running()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    postgres_url: str, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """pytest-django calls this before it makes the test database."""


def pytest_unconfigure() -> None:
    """End what the session started."""
    postgres.stop()
