"""The one-command run, as a person at a terminal meets it."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator

import openai
import psutil
import pytest

from infra.local.config import ROOT
from infra.local.processes import find_stray_processes
from tests.fixtures.stack import COMMAND_SECONDS_MAX, PENSTOCK, Stack
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

PROCESSES = {"postgres", "redis", "control", "fleet", "gateway", "worker", "scheduler"}


@pytest.fixture
def own_stack() -> Iterator[Stack]:
    """A stack that is not started yet."""
    stack = Stack(engine="simulated", prepared=True)
    yield stack
    stack.remove()


def test_status_shows_every_process_and_the_replica(simulated_stack: Stack) -> None:
    simulated_stack.wait_ready()
    # What an earlier test has killed is started anew; its children may answer meanwhile.
    wait_until(
        lambda: simulated_stack.supervisor.pids().keys() == PROCESSES,
        seconds=60,
        what="every process runs",
    )
    shown = simulated_stack.penstock("status", "--json")
    status = json.loads(shown.stdout)
    assert shown.returncode == 0
    assert {each["name"] for each in status["processes"]} == PROCESSES
    assert all(psutil.pid_exists(each["pid"]) for each in status["processes"])
    # Replicas that tests of faults have killed are shown for a while, with their reason.
    living = [each for each in status["replicas"] if each["state"] != "failed"]
    assert [each["state"] for each in living] == ["ready"]
    assert status["ports"]["console"] == simulated_stack.port_base
    assert "Replicas" in simulated_stack.penstock("status").stdout


def test_credentials_are_private_and_complete(simulated_stack: Stack) -> None:
    file = simulated_stack.home.credentials_file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = simulated_stack.credentials
    assert set(found) == {"api_base", "api_key", "console_url", "admin_url", "owner", "operator"}
    assert set(found["owner"]) == set(found["operator"]) == {"email", "password"}
    assert found["owner"]["password"] != found["operator"]["password"]


def test_a_second_up_says_that_it_runs_already(simulated_stack: Stack) -> None:
    again = simulated_stack.penstock("up", "--detach")
    assert again.returncode == 1
    assert re.fullmatch(r"penstock: already running in .+\n", again.stderr)


def test_a_taken_port_is_one_line_and_nothing_starts(own_stack: Stack) -> None:
    with socket.create_server(("127.0.0.1", own_stack.config.ports.gateway)):
        result = own_stack.penstock("up", "--detach")
    assert result.returncode == 1
    port = own_stack.config.ports.gateway
    assert re.fullmatch(rf"penstock: taken: port {port} \(gateway\);.+\n", result.stderr)
    assert result.stdout == ""
    assert find_stray_processes(own_stack.config.home) == []


def test_two_run_side_by_side_and_ctrl_c_ends_one_of_them_whose_data_survive(
    simulated_stack: Stack, own_stack: Stack
) -> None:
    process, output = in_the_foreground(own_stack)
    assert own_stack.api_key != simulated_stack.api_key
    before = own_stack.credentials
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=COMMAND_SECONDS_MAX)
    assert process.returncode == 0
    assert find_stray_processes(own_stack.config.home) == []
    ended = re.findall(r"^  (\w+) +ended", rest, re.MULTILINE)
    assert ended == ["gateway", "scheduler", "worker", "fleet", "control", "redis", "postgres"]
    assert "Traceback" not in output + rest
    simulated_stack.wait_ready()
    assert own_stack.penstock("status").returncode == 3

    own_stack.up()
    assert own_stack.credentials == before
    assert "penstock-demo" in models(own_stack)
    os.kill(own_stack.supervisor.pid(), signal.SIGKILL)
    assert find_stray_processes(own_stack.config.home) != []
    assert own_stack.penstock("down").returncode == 0
    assert find_stray_processes(own_stack.config.home) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", own_stack.config.ports.redis))


def test_a_killed_process_comes_back(simulated_stack: Stack) -> None:
    killed = simulated_stack.living_pid("gateway")
    os.kill(killed, signal.SIGKILL)
    assert simulated_stack.living_pid("gateway", other_than=killed)
    simulated_stack.wait_ready()


def in_the_foreground(stack: Stack) -> tuple[subprocess.Popen[str], str]:
    """Start `penstock up` as a terminal does; return it, and what it wrote until it was ready."""
    # As in a terminal: a session in the background may hand down that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [PENSTOCK, "up"],
        env=stack.variables,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    lines, deadline = [], time.monotonic() + COMMAND_SECONDS_MAX
    while "Ctrl-C ends it" not in "".join(lines[-1:]):
        assert time.monotonic() < deadline and process.poll() is None, "".join(lines)
        lines.append(process.stdout.readline())
    return process, "".join(lines)


def models(stack: Stack) -> list[str]:
    """Return the models that the stack's key may use."""
    client = openai.OpenAI(base_url=stack.api_base, api_key=stack.api_key, max_retries=0)
    with client:
        return [model.id for model in client.models.list()]
