"""A group is killed whole, and nobody else ever is."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.fleet.engine_process import (
    FOLDER_VARIABLE,
    REPLICA_VARIABLE,
    ProcessGroup,
    ProcessIdentity,
    ProcessTable,
    find_group,
    group_of,
    mark_of,
)
from tests.fixtures.waiting import wait_until

FOLDER = Path("/nowhere/fleet")
PARENT = (
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "time.sleep(60)"
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    marks = {REPLICA_VARIABLE: f"test-{os.getpid()}", FOLDER_VARIABLE: str(FOLDER)}
    environment = os.environ | marks
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], start_new_session=True, env=environment
    ) as started:
        yield started
        if started.poll() is None:
            os.killpg(started.pid, 9)


def with_members(group: ProcessGroup, count: int) -> ProcessGroup:
    def grown() -> bool:
        group.refresh()
        return len(group.members) >= count

    wait_until(grown)
    return group


def test_the_whole_group_is_killed(child: subprocess.Popen[bytes]) -> None:
    group = with_members(group_of(child), 2)
    assert group.is_alive
    group.kill()
    wait_until(lambda: not group.survivors)
    assert group.reap() == -9
    assert not group.is_alive


def test_groups_are_looked_up_together_and_again_once_that_is_too_long_ago(
    child: subprocess.Popen[bytes],
) -> None:
    now = [0.0]
    table = ProcessTable(lambda: now[0])
    leader = with_members(group_of(child), 2).leader
    assert leader in table.members(child.pid, seconds_old_max=1.0)
    with subprocess.Popen([sys.executable, "-c", PARENT], start_new_session=True) as other:
        try:
            assert table.members(other.pid, seconds_old_max=1.0) == ()
            now[0] = 1.0
            [first, *_] = table.members(other.pid, seconds_old_max=1.0)
            assert first.pid == other.pid
            assert len(table.members(child.pid, seconds_old_max=1.0)) == 2
        finally:
            os.killpg(other.pid, 9)
    assert first in table.members(other.pid, seconds_old_max=1.0)
    assert first not in table.members(other.pid, seconds_old_max=0.0)


def test_what_a_group_computes_is_seen() -> None:
    work = "while True: pass"
    with subprocess.Popen([sys.executable, "-c", work], start_new_session=True) as busy:
        group = with_members(group_of(busy), 1)
        wait_until(lambda: group.cpu_seconds > 0.05)
        group.kill()
        group.reap()


def test_orphans_of_a_dead_leader_are_killed(child: subprocess.Popen[bytes]) -> None:
    group = with_members(group_of(child), 2)
    adopted = ProcessGroup(group.leader, group.members)
    os.kill(child.pid, 9)
    child.wait()
    assert len(adopted.survivors) == 1
    adopted.kill()
    wait_until(lambda: not adopted.survivors)


def test_a_recycled_pid_is_never_signalled(child: subprocess.Popen[bytes]) -> None:
    mark = mark_of(child.pid)
    assert mark is not None
    other = ProcessIdentity(child.pid, "1@another-boot")
    stale = ProcessGroup(other, (other,))
    assert not stale.is_alive
    assert stale.survivors == ()
    stale.terminate()
    stale.kill()
    time.sleep(0.1)
    assert child.poll() is None


def test_a_replica_is_found_by_the_environment_it_was_started_with(
    child: subprocess.Popen[bytes],
) -> None:
    found = find_group(f"test-{os.getpid()}", FOLDER)
    assert found is not None
    assert found.leader == ProcessIdentity(child.pid, mark_of(child.pid) or "")
    assert find_group("nobody", FOLDER) is None
    assert find_group(f"test-{os.getpid()}", FOLDER / "other") is None


def test_a_process_that_is_gone_has_no_mark() -> None:
    assert mark_of(2**22 + 1) is None
    assert not Path(f"/proc/{2**22 + 1}").exists()
