"""What an engine is given of this machine, and when it is refused."""

import sys
from pathlib import Path

import pytest

from serving.contract.credential import ServiceAuthenticator
from serving.engine.adapter import LaunchSpec
from serving.fleet import local_launcher
from serving.fleet.config import FleetConfig
from serving.fleet.engine_process import LogFile
from serving.fleet.launcher import LaunchError, LaunchObservation, LaunchRequest
from serving.fleet.local_launcher import LocalLauncher, engine_environment
from tests.fixtures.environment import free_port_base
from tests.fixtures.waiting import eventually


def test_an_engine_sees_no_secret_of_ours() -> None:
    ours = {
        "PATH": "/bin",
        "HF_HOME": "/models",
        "CUDA_VISIBLE_DEVICES": "0",
        "VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD": "1",
        "LC_ALL": "C",
    }
    others = {
        "PENSTOCK_INTERNAL_SECRET": "s",
        "DATABASE_URL": "postgres://",
        "AWS_SECRET_ACCESS_KEY": "k",
        "HF_TOKEN": "t",
        "HF_ANYTHING": "a",
        "VLLM_API_KEY": "k",
        "NCCL_SECRET": "s",
    }
    found = engine_environment(ours | others)
    assert set(found) <= set(ours)
    assert {"PATH", "HF_HOME", "CUDA_VISIBLE_DEVICES", "LC_ALL"} <= set(found)


def launcher_in(folder: Path) -> LocalLauncher:
    ports = free_port_base(2)
    callers = ServiceAuthenticator(())
    return LocalLauncher(FleetConfig("http://c", "", callers, "x", 1, folder, ports, 2))


def request(folder: Path, spec: LaunchSpec) -> LaunchRequest:
    log = folder / "logs" / "r1.log"
    return LaunchRequest("r1", spec, log, "gateway-token-of-r1", "fleet-token-of-r1--")


async def test_too_little_memory_is_said_before_anything_starts(tmp_path: Path) -> None:
    launch = LaunchSpec((sys.executable,), memory_bytes=2**60)
    with pytest.raises(LaunchError, match=r"needs 1073741824\.0 GiB of memory"):
        await launcher_in(tmp_path).start(request(tmp_path, launch))
    assert launcher_in(tmp_path).find("r1") is None


async def ended(launcher: LocalLauncher, asked: LaunchRequest) -> LaunchObservation:
    handle = await launcher.start(asked)

    def is_gone() -> LaunchObservation | None:
        seen = launcher.observe(handle)
        return None if seen.is_left else seen

    return await eventually(is_gone)


async def test_a_command_that_is_not_there_is_said_in_the_log(tmp_path: Path) -> None:
    asked = request(tmp_path, LaunchSpec(("no-such-engine",)))
    assert not (await ended(launcher_in(tmp_path), asked)).is_alive
    assert "no-such-engine" in LogFile(asked.log).last_error()


async def test_an_engine_runs_in_its_nodes_session_and_logs(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import os; print(os.getsid(0) == os.getppid())")
    asked = request(tmp_path, LaunchSpec(command))
    await ended(launcher_in(tmp_path), asked)
    assert asked.log.read_text() == "True\n"
    assert not list((tmp_path / "nodes").iterdir())


async def test_a_stored_handle_is_all_that_another_launcher_needs(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import time; time.sleep(600)")
    asked = request(tmp_path, LaunchSpec(command))
    first, other = launcher_in(tmp_path), launcher_in(tmp_path)
    handle = await first.start(asked)
    seen = await eventually(lambda: next((o for o in [other.observe(handle)] if o.url), None))
    assert seen.is_alive
    assert other.find("r1") is not None
    other.end(seen.handle, at_once=False)
    await eventually(lambda: not other.observe(seen.handle).is_alive)
    other.end(seen.handle, at_once=True)
    await eventually(lambda: not other.observe(seen.handle).is_left)
    assert not first.observe(handle).is_left


def test_a_cgroup_limits_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    monkeypatch.setattr(local_launcher, "CGROUP", tmp_path)
    assert local_launcher.available_bytes() == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert local_launcher.available_bytes() > 600
