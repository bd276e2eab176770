"""The books against two hundred seeds of a world that is out to break them."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from infra.local.home import Home
from infra.local.simulate import running

pytestmark = pytest.mark.seeds

SEEDS_EACH = 25
TEMPLATE = "penstock_simulation_prepared"


@pytest.fixture(scope="module")
def server():
    """A server of its own: on a shared one, followers would wait for others' transactions."""
    with tempfile.TemporaryDirectory(prefix="penstock-seeds-") as folder:
        home = Home(Path(folder))
        home.path.chmod(0o711)  # PostgreSQL may run as another user, who passes through
        with running(home) as url:
            yield url


def simulate(server, *arguments):
    """Run the simulator as an operator does; it makes and drops a database of its own."""
    command = [sys.executable, "-m", "infra.local.cli", "simulate-books", "--server", server]
    return subprocess.run(
        [*command, "--template", TEMPLATE, *arguments],
        env=dict(os.environ), capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@pytest.mark.parametrize("start", range(0, 200, SEEDS_EACH))
def test_two_hundred_seeds_are_clean(server, start):
    done = simulate(server, "--seeds", str(SEEDS_EACH), "--start", str(start))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{SEEDS_EACH} seeds from {start} on are clean" in done.stdout
    assert f"0 of {SEEDS_EACH} seeds" in done.stderr


def test_a_seed_tells_the_same_story_twice(server):
    stories = [simulate(server, "--seed", "7", "--verbose") for _ in range(2)]
    assert [one.returncode for one in stories] == [0, 0]
    first, second = (one.stdout.splitlines()[:-1] for one in stories)
    assert first == second
    assert any("credit_grant_leases" in line for line in first)
