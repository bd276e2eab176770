"""`penstock simulate-books` that is told to end leaves no process and no database behind."""

import os
import signal
import subprocess
import sys

import psutil
import psycopg
import pytest

from billing.simulation.database import NAME_PREFIX
from infra.local.simulate import SERVER_VARIABLE

pytestmark = pytest.mark.integration


def hear_interrupts() -> None:
    """Undo what a shell does to its background jobs, which the tests may be one of."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_it_started_ends_with_it(postgres_url: str, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "infra.cli", "simulate-books", "--seeds", "1000"]
    environment = {**os.environ, SERVER_VARIABLE: postgres_url}
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=hear_interrupts,  # noqa: PLW1509 - it takes no lock
    ) as simulation:
        assert simulation.stderr is not None
        assert simulation.stderr.readline() == "0 of 1,000 seeds\n"
        (child,) = psutil.Process(simulation.pid).children()
        for process in (psutil.Process(simulation.pid), child):  # everybody may read this
            assert "postgresql://" not in " ".join(process.cmdline())
        simulation.send_signal(number)
        assert simulation.wait(timeout=300) == 130
    assert not child.is_running()
    with psycopg.connect(postgres_url) as server:
        query = "SELECT datname FROM pg_database WHERE datname = %s"
        assert server.execute(query, [f"{NAME_PREFIX}_{child.pid}"]).fetchall() == []


@pytest.mark.full
def test_a_template_is_made_once_and_stays(postgres_url: str) -> None:
    name = f"{NAME_PREFIX}_template"
    command = [sys.executable, "-m", "infra.cli", "simulate-books", "--server", postgres_url]
    made = "SELECT oid FROM pg_database WHERE datname = %s"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        try:
            oids = []
            for _ in range(2):
                subprocess.run([*command, "--seeds", "1", "--template", name], check=True)
                oids.append(server.execute(made, [name]).fetchone())
            assert oids[0] == oids[1] is not None
        finally:
            server.execute(f"DROP DATABASE IF EXISTS {name}")
