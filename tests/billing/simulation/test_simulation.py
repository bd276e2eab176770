"""The books against two hundred seeds of a world that is out to break them."""

import os
import subprocess

import pytest

from infra.local.manage import manage_command

pytestmark = pytest.mark.faults

SEEDS_EACH = 50


def simulate(postgres_url, *arguments):
    """Run the simulator as an operator does; it makes and drops a database of its own."""
    command = [*manage_command("simulate_books"), "--server", postgres_url, *arguments]
    return subprocess.run(
        command, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=600
    )


@pytest.mark.parametrize("start", range(0, 200, SEEDS_EACH))
def test_two_hundred_seeds_are_clean(postgres_url, start):
    done = simulate(postgres_url, "--seeds", str(SEEDS_EACH), "--start", str(start))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{SEEDS_EACH} seeds from {start} on are clean" in done.stdout


def test_a_seed_tells_the_same_story_twice(postgres_url):
    stories = [simulate(postgres_url, "--seed", "7", "--verbose") for _ in range(2)]
    assert [one.returncode for one in stories] == [0, 0]
    first, second = (one.stdout.splitlines()[:-1] for one in stories)
    assert first == second
    assert any("credit_grant_leases" in line for line in first)
