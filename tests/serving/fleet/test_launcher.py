"""What an engine is given of this machine, and when it is refused."""

import os
import socket
import sys
from pathlib import Path

import pytest

from serving.engine.adapter import LaunchSpec
from serving.fleet import launcher
from serving.fleet.launcher import LaunchError, engine_environment, free_port, start
from tests.fixtures import environment


def test_an_engine_sees_no_secret_of_ours() -> None:
    ours = {
        "PATH": "/bin",
        "HF_HOME": "/models",
        "CUDA_VISIBLE_DEVICES": "0",
        "PENSTOCK_INTERNAL_SECRET": "s",
        "DATABASE_URL": "postgres://",
        "AWS_SECRET_ACCESS_KEY": "k",
    }
    assert set(engine_environment(ours)) == {"PATH", "HF_HOME", "CUDA_VISIBLE_DEVICES"}


def test_too_little_memory_is_said_before_anything_starts(tmp_path: Path) -> None:
    launch = LaunchSpec((sys.executable,), memory_bytes=2**60)
    with pytest.raises(LaunchError, match=r"needs 1073741824\.0 GiB of memory"):
        start(launch, replica_id="r1", folder=tmp_path, log=tmp_path / "r1.log")
    assert not (tmp_path / "r1.log").exists()


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no-such-engine"):
        start(
            LaunchSpec(("no-such-engine",)),
            replica_id="r1",
            folder=tmp_path,
            log=tmp_path / "r1.log",
        )


def test_a_cgroup_limits_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    monkeypatch.setattr(launcher, "CGROUP", tmp_path)
    assert launcher.available_bytes() == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert launcher.available_bytes() > 600


def test_ports_in_use_are_passed_over() -> None:
    port = environment.free_port()  # which the system gives to no client meanwhile
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind(("127.0.0.1", port))
        busy.listen()
        with pytest.raises(LaunchError, match="is free"):
            free_port(port, 1, taken=())
    assert free_port(port, 1, taken=()) == port
    with pytest.raises(LaunchError):
        free_port(port, 1, taken=(port,))


def test_a_started_engine_leads_its_own_session_and_logs(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "r1.log"
    command = (sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())")
    group = start(LaunchSpec(command), replica_id="r1", folder=tmp_path, log=log)
    while group.is_alive:
        os.sched_yield()
    assert group.reap() == 0
    assert log.read_text() == "True\n"
