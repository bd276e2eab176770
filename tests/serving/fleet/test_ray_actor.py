"""An actor's process as on a node of a cluster, but without Ray: what it starts and ends."""

import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest

from serving.contract.codec import decode, encode
from serving.contract.node import ENGINE_PORT, NodeLaunch
from serving.fleet.ray_actor import ActorReport, ReplicaActor, StartOrder
from tests.fixtures.environment import free_port_base
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.integration

ENGINE = (sys.executable, "-m", "serving.engine.simulated", "--port", ENGINE_PORT)
PROCESS = """
import sys, time
from serving.fleet.ray_actor import ReplicaActor

actor = ReplicaActor("127.0.0.1", ())
if problem := actor.begin(sys.stdin.buffer.read()):
    sys.exit(problem)
while True:
    report = actor.look()
    if b'"url":"http' in report:
        print(report.decode(), flush=True)
    time.sleep(0.05)
"""


def order(**changes: str) -> bytes:
    launch = NodeLaunch("r1", ENGINE, {}, (), "-", free_port_base(8), 8)
    fields = {"python": sys.executable, "penstock": version("penstock")} | changes
    return encode(StartOrder(launch, **fields))


def test_a_killed_actor_leaves_no_process(tmp_path: Path) -> None:
    process = subprocess.Popen(
        (sys.executable, "-c", PROCESS),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin, process.stdout:
        process.stdin.write(order())
        process.stdin.close()
        report = decode(process.stdout.readline(), ActorReport)
        assert report.is_alive
        assert report.host == "127.0.0.1"
        pids = (report.node_pid, report.engine_pid)
        assert all(psutil.pid_exists(pid) for pid in pids)
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), "no process", seconds=10)


def test_a_host_with_another_penstock_starts_nothing() -> None:
    actor = ReplicaActor("10.0.0.7", ())
    told = actor.begin(order(penstock="0.0.1"))
    assert told == f"the fleet has Penstock 0.0.1, 10.0.0.7 {version('penstock')}"
    assert not decode(actor.look(), ActorReport).url


def test_what_an_engine_writes_is_told_once() -> None:
    launch = NodeLaunch("r2", ("/no/such/engine",), {}, (), "-", free_port_base(8), 8)
    actor = ReplicaActor("127.0.0.1", ())
    given = encode(StartOrder(launch, sys.executable, version("penstock")))
    assert actor.begin(given) == ""
    said, deadline = b"", time.monotonic() + 30
    while (report := decode(actor.look(), ActorReport)).is_alive and time.monotonic() < deadline:
        said += report.log
        time.sleep(0.02)
    said += report.log
    assert said.count(b"NodeError: /no/such/engine") == 1
    assert not report.is_alive
