"""Fixtures for every tier; the environment is set before Django's settings load."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import environment, postgres
from tests.support.leftovers import leftover_processes
from tests.support.second_gateway import SecondGateway, beside
from tests.support.stack import Stack, running
from tests.support.traces import Traces, receiving

QUICK_RESTARTS = {
    "PENSTOCK_FLEET_POLL_SECONDS": "0.2",
    "PENSTOCK_FLEET_STEADY_SECONDS": "0.1",
    "PENSTOCK_FLEET_BACKOFF_FIRST_SECONDS": "0.1",
}


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """A PostgreSQL that answers: the session's own, or DATABASE_URL where that was given."""
    return postgres.ensure_running()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    postgres_url: str, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """pytest-django calls this before it makes the test database."""


@pytest.fixture(scope="session")
def traces() -> Iterator[Traces]:
    """Whatever the stack with real vLLM exports as traces."""
    with receiving() as traces:
        yield traces


@pytest.fixture(scope="session")
def stack(traces: Traces) -> Iterator[Stack]:
    """The whole platform with real vLLM and the demo model."""
    with running(engine="vllm", OTEL_EXPORTER_OTLP_ENDPOINT=traces.endpoint) as stack:
        yield stack


@pytest.fixture(scope="session")
def simulated_stack() -> Iterator[Stack]:
    """The whole platform with a simulated engine, which may be killed twenty times in a row."""
    with running(engine="simulated", **QUICK_RESTARTS) as stack:
        yield stack


@pytest.fixture
def second_gateway(simulated_stack: Stack, tmp_path: Path) -> Iterator[SecondGateway]:
    """Another gateway on the simulated stack's control plane and fleet."""
    with beside(simulated_stack, tmp_path) as gateway:
        yield gateway


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what the session started, and fail it when a process is left over."""
    postgres.stop()
    if environment.is_own_session() and (left := leftover_processes()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        lines = [f"left over: {process.pid} {' '.join(process.cmdline())}" for process in left]
        session.config.get_terminal_writer().line("\n" + "\n".join(lines), red=True)
