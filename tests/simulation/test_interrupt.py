"""The simulator that is told to end leaves no database behind, and shows nobody its password."""

import os
import signal
import subprocess
import sys

import psutil
import psycopg
import pytest

from tests.simulation.database import NAME_PREFIX
from tests.simulation.server import SERVER_VARIABLE

pytestmark = pytest.mark.integration


def hear_interrupts() -> None:
    """Undo what a shell does to its background jobs, which the tests may be one of."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_it_started_ends_with_it(postgres_url: str, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "1000"]
    environment = {**os.environ, SERVER_VARIABLE: postgres_url}
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=hear_interrupts,  # noqa: PLW1509 - it takes no lock
    ) as simulation:
        assert simulation.stderr is not None
        said = [simulation.stderr.readline() for _ in range(2)]
        assert said == ["preparing a database\n", "0 of 1,000 seeds\n"]
        process = psutil.Process(simulation.pid)
        assert process.children() == []
        assert "postgresql://" not in " ".join(process.cmdline())  # everybody may read this
        simulation.send_signal(number)
        assert simulation.wait(timeout=300) == 128 + number
    with psycopg.connect(postgres_url) as server:
        query = "SELECT datname FROM pg_database WHERE datname = %s"
        assert server.execute(query, [f"{NAME_PREFIX}_{simulation.pid}"]).fetchall() == []


@pytest.mark.full
def test_a_template_is_made_once_and_stays(postgres_url: str) -> None:
    name = f"{NAME_PREFIX}_template"
    command = [sys.executable, "-m", "tests.simulation", "--server", postgres_url]
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
