"""The books against seeds of a world that is out to break them.

Twelve fixed seeds run every day (each documented mutant dies by seed 10), as many more and sixteen
fresh ones in `make test-all`, thousands in `make test-long`. To repeat what a failure names:
`python -m tests.simulation --seed N`.
"""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from infra.local.state_dir import StateDirectory
from tests.fixtures.progress import CleanRuns
from tests.simulation.server import running

pytestmark = pytest.mark.integration

TEMPLATE = "penstock_simulation_prepared"
FIXED_COUNT, FIXED_FULL_COUNT = 6, 18
"""As many share a boot and a database, which cost more than four seeds."""
FRESH_COUNT = 16
FRESH_FROM, FRESH_UNTIL = 1_000_000, 2**31
"""Beyond all seeds that anybody runs in a row."""
LONG_EACH = 100
LONG_STARTS = range(0, 4000, LONG_EACH)
TIMEOUT_SECONDS = 3600
"""A seed takes two seconds, but a machine may have other work."""


@pytest.fixture(scope="module")
def server():
    """A server of its own: on a shared one, followers would wait for others' transactions."""
    with tempfile.TemporaryDirectory(prefix="penstock-seeds-") as folder:
        home = StateDirectory(Path(folder))
        home.path.chmod(0o711)  # PostgreSQL may run as another user, who passes through
        with running(home) as url:
            yield url


def simulate(server, *arguments):
    """Run the simulator as a developer does; it makes and drops a database of its own."""
    command = [sys.executable, "-m", "tests.simulation", "--server", server]
    return subprocess.run(
        [*command, "--template", TEMPLATE, *arguments],
        env=dict(os.environ), capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip


def must_be_clean(server, start, count):
    done = simulate(server, "--seeds", str(count), "--start", str(start))
    assert done.returncode == 0, f"of {count} seeds from {start} on: {done.stdout}{done.stderr}"
    assert f"{count} seeds from {start} on are clean" in done.stdout
    assert f"0 of {count} seeds" in done.stderr


@pytest.mark.parametrize(
    ("start", "count"),
    [(0, FIXED_COUNT), pytest.param(FIXED_COUNT, FIXED_FULL_COUNT, marks=pytest.mark.full)],
)
def test_fixed_seeds_are_clean(server, start, count):
    must_be_clean(server, start, count)


@pytest.mark.full
def test_fresh_seeds_are_clean(server):
    must_be_clean(server, random.SystemRandom().randrange(FRESH_FROM, FRESH_UNTIL), FRESH_COUNT)


@pytest.mark.long
@pytest.mark.parametrize("start", LONG_STARTS)
def test_thousands_of_seeds_are_clean(server, start, pytestconfig):
    """A run that was cut short goes on where it was, as long as the commit is the same."""
    clean = CleanRuns(pytestconfig, "seeds")
    if not clean.has(start):
        must_be_clean(server, start, LONG_EACH)
        clean.add(start)


@pytest.mark.full
def test_a_seed_tells_the_same_story_twice(server):
    stories = [simulate(server, "--seed", "7", "--verbose") for _ in range(2)]
    assert [one.returncode for one in stories] == [0, 0]
    first, second = (one.stdout.splitlines()[:-1] for one in stories)
    assert first == second
    assert any("credit_grant_leases" in line for line in first)
