"""A node as a process, with the simulated engine: what ends with what, and what it tells nobody."""

import asyncio
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from serving.contract.codec import decode, encode
from serving.contract.node import ENGINE_PORT, NodeLaunch, NodeReport, RouteGrant
from serving.node import supervisor
from tests.fixtures.balancers import certificate
from tests.fixtures.environment import free_port_base
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.integration

TOKEN = "gateway-token-of-a-test"
ROUTES = (("POST", "/v1/completions"), ("GET", "/health"))
ENGINE = (
    *(sys.executable, "-m", "serving.engine.simulated", "--served-model-name", "m"),
    *("--itl-seconds", "0.02", "--host", "127.0.0.1", "--port", ENGINE_PORT),
)
SLEEPER = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"


def launch(folder: Path, *command: str, **fields: object) -> NodeLaunch:
    settings = {
        "replica_id": "r1",
        "command": command or ENGINE,
        "environment": dict(os.environ),
        "grants": (RouteGrant(TOKEN, ROUTES),),
        "report_file": str(folder / "report.json"),
        "port_base": free_port_base(2),
        "port_count": 2,
    }
    return NodeLaunch(**settings | fields)  # type: ignore[arg-type]


class NodeProcess:
    """`python -m serving.node`."""

    def __init__(self, launch: NodeLaunch, *, pass_fds: tuple[int, ...] = ()) -> None:
        self.report_file = Path(launch.report_file)
        self.log = self.report_file.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                (sys.executable, "-m", "serving.node"),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(encode(launch))
        self.process.stdin.close()

    def report(self) -> NodeReport:
        wait_until(self.report_file.exists)
        return decode(self.report_file.read_bytes(), NodeReport)

    def members(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if os.getpgid(process.pid) == self.process.pid and process.is_running():
                    found.append(process)
            except ProcessLookupError:
                continue
        return [one for one in found if one.status() != psutil.STATUS_ZOMBIE]


@contextmanager
def node(told: NodeLaunch, *, pass_fds: tuple[int, ...] = ()) -> Iterator[NodeProcess]:
    started = NodeProcess(told, pass_fds=pass_fds)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            os.killpg(started.process.pid, signal.SIGKILL)
            started.process.wait()


def ask(url: str, path: str, *, token: str = TOKEN, context: ssl.SSLContext | None = None) -> bytes:
    request = urllib.request.Request(url + path, headers={"authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        return answer.read()


def is_up(url: str) -> bool:
    """Whether the engine answers anything through its node."""
    try:
        ask(url, "/health")
    except urllib.error.HTTPError as answered:
        answered.close()
    except OSError:
        return False
    return True


def test_an_engine_is_served_and_nothing_is_told(tmp_path: Path) -> None:
    told = launch(tmp_path)
    with node(told) as started:
        report = started.report()
        wait_until(lambda: is_up(report.url))
        for path, token, status in (("/metrics", TOKEN, 404), ("/health", "x", 401)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(report.url, path, token=token)
            refused.value.close()
            assert refused.value.code == status
        members = started.members()
        assert {report.node_pid, report.engine_pid} < {one.pid for one in members}
        for process in members:
            assert TOKEN not in " ".join(process.cmdline())
            assert TOKEN not in process.environ().values()
        assert TOKEN not in started.log.read_text() + started.report_file.read_text()
        listening = {
            (one.pid, line.laddr)
            for one in members
            for line in one.net_connections("inet")
            if line.status == psutil.CONN_LISTEN
        }
        ports = {int(url.rpartition(":")[2]) for url in (report.url, report.engine_url)}
        assert {address.port for _, address in listening} == ports


DRAINS = """
import signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
told = threading.Event()
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"a")
        self.wfile.flush()
        told.wait()
        time.sleep(0.2)
        self.wfile.write(b"b")
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.daemon_threads = False
signal.signal(signal.SIGTERM, lambda *_: told.set())
threading.Thread(target=server.serve_forever, daemon=True).start()
told.wait()
server.shutdown()
server.server_close()
sys.exit(3)
"""


def test_an_answer_under_way_is_not_cut_by_an_end_in_order(tmp_path: Path) -> None:
    with node(launch(tmp_path, sys.executable, "-c", DRAINS, ENGINE_PORT)) as started:
        url = started.report().url
        headers = {"authorization": f"Bearer {TOKEN}"}
        request = urllib.request.Request(f"{url}/v1/completions", data=b"{}", headers=headers)
        wait_until(lambda: is_up(url))
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.read(1) == b"a"
            started.process.terminate()
            assert answer.read() == b"b"
        assert started.process.wait(60) == 3
        assert not started.members()


def test_a_node_with_a_certificate_speaks_tls_alone(tmp_path: Path) -> None:
    certificate(tmp_path)
    files = {"tls_certificate": tmp_path / "penstock.crt", "tls_key": tmp_path / "penstock.key"}
    told = launch(tmp_path, **{name: str(path) for name, path in files.items()})
    trusted = ssl.create_default_context(cafile=tmp_path / "penstock.crt")
    trusted.check_hostname = False
    with node(told) as started:
        url = started.report().url
        assert url.startswith("https://127.0.0.1:")

        def answers() -> bool:
            try:
                return ask(url, "/health", context=trusted) == b""
            except OSError:
                return False

        wait_until(answers)
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(url.replace("https:", "http:"), "/health")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_node_ends_with_its_engines_status(tmp_path: Path, number: signal.Signals) -> None:
    with node(launch(tmp_path, sys.executable, "-c", SLEEPER)) as started:
        report = started.report()
        wait_until(lambda: len(started.members()) == 4)  # node, guard, engine, its child
        os.kill(report.engine_pid, number)
        assert started.process.wait(60) == 128 + number
        wait_until(lambda: not started.members())


def test_an_engine_ends_with_its_node_and_with_the_guard(tmp_path: Path) -> None:
    for victim in ("node", "guard"):
        with node(launch(tmp_path, sys.executable, "-c", SLEEPER)) as started:
            report = started.report()
            wait_until(lambda: len(started.members()) == 4)
            guard = next(one for one in started.members() if "kill -KILL 0" in one.cmdline()[-1])
            os.kill(report.node_pid if victim == "node" else guard.pid, signal.SIGKILL)
            assert started.process.wait(60) == -signal.SIGKILL
            wait_until(lambda: not started.members())
            started.report_file.unlink()


def test_an_engine_ends_with_the_lifeline(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    told = launch(tmp_path, sys.executable, "-c", SLEEPER, lifeline=ours)
    with node(told, pass_fds=(ours,)) as started:
        os.close(ours)
        started.report()
        wait_until(lambda: len(started.members()) == 4)
        time.sleep(0.2)
        assert started.process.poll() is None
        os.close(theirs)
        assert started.process.wait(60) == -signal.SIGKILL
        wait_until(lambda: not started.members())


def test_what_cannot_be_killed_is_left_to_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen(("true",))
    gone.wait()
    looks: list[float] = []

    def members() -> list[int]:
        """Stand in for a process in an uninterruptible sleep, which no test can have."""
        looks.append(time.monotonic())
        return [gone.pid]

    monkeypatch.setattr(supervisor, "_members", members)
    with subprocess.Popen(("sleep", "600")) as guard:
        try:
            asyncio.run(asyncio.wait_for(supervisor.end_group(guard, seconds=0.3), 60))
            assert guard.poll() is None
        finally:
            guard.kill()
    assert looks[-1] - looks[0] >= 0.2
    assert len(looks) <= 8


def test_ports_in_use_are_passed_over_and_their_lack_is_said(tmp_path: Path) -> None:
    told = launch(tmp_path, sys.executable, "-c", SLEEPER, port_count=1)
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind(("127.0.0.1", told.port_base))
        busy.listen()
        with node(told) as started:
            assert started.process.wait(60) == 1
            assert f"no port of {told.port_base} to {told.port_base} is free" in (
                started.log.read_text()
            )


def test_a_launch_that_is_none_names_the_field(tmp_path: Path) -> None:
    bad = encode(launch(tmp_path)).replace(b'"port_count":2', b'"port_count":0')
    ended = subprocess.run(
        (sys.executable, "-m", "serving.node"), input=bad, capture_output=True, check=False
    )
    assert ended.returncode == 2
    assert b"port_count" in ended.stderr
    assert TOKEN.encode() not in ended.stderr
