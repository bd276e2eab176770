"""Two hosts on one machine: network namespaces joined by a pair of virtual devices, with a Ray node
on each, which make one cluster. Needs root."""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from infra.local.redis import find_server
from tests.fixtures.waiting import wait_until

ADDRESSES = {"a": "10.213.77.1", "b": "10.213.77.2"}
"""Of the hosts: the head and the fleet are on `a`."""
PORT, REDIS_PORT, CLIENT_PORT = 6399, 6398, 10_001
TOKEN = "ray-token-of-the-hosts-part"
CLONE_NEWNET = 0x40000000
LASTING = {"RAY_gcs_rpc_server_reconnect_timeout_s": "86400"}


class RayHosts:
    """The hosts and their processes."""

    def __init__(self, folder: Path, *, settings: bool = True) -> None:
        self.folder = folder
        self._token = str(os.getpid())
        self._with_redis = settings
        self.environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": TOKEN,
            **(LASTING if settings else {}),
        }
        self._redis: subprocess.Popen[bytes] | None = None
        self._gcs: tuple[list[str], dict[str, str]] | None = None

    def namespace(self, host: str) -> str:
        """Return the name of a host's network namespace."""
        return f"penstock-{self._token}-{host}"

    def device(self, host: str) -> str:
        """Return the name of a host's network device, in its namespace."""
        return f"p{self._token}{host}"

    def make(self) -> None:
        """Make the namespaces and the link, and start Ray on both."""
        for host in ADDRESSES:
            _run("ip", "netns", "add", self.namespace(host))
            self._ip(host, "link", "set", "lo", "up")
        ends = (self.device("a"), "type", "veth", "peer", "name", self.device("b"))
        _run("ip", "link", "add", *ends)
        for host, address in ADDRESSES.items():
            _run("ip", "link", "set", self.device(host), "netns", self.namespace(host))
            self._ip(host, "addr", "add", f"{address}/24", "dev", self.device(host))
            self._ip(host, "link", "set", self.device(host), "up")
        head = {}
        if self._with_redis:
            self._start_redis()
            head = {"RAY_REDIS_ADDRESS": f"{ADDRESSES['a']}:{REDIS_PORT}"}
        self._start_ray("a", "--head", f"--port={PORT}", "--include-dashboard=false", **head)
        self.start_node("b")

    def enter(self, host: str) -> None:
        """Be on a host from now on."""
        with Path("/run/netns", self.namespace(host)).open() as inside:
            _enter(inside.fileno())

    def start_node(self, host: str) -> None:
        """Start Ray on a host without the head."""
        self._start_ray(host, f"--address={ADDRESSES['a']}:{PORT}")

    def kill_host(self, host: str) -> None:
        """Kill all processes of a host at once."""
        for process in self.processes(host):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def cut(self, host: str) -> None:
        """Take a host's link down."""
        self._ip(host, "link", "set", self.device(host), "down")

    def join(self, host: str) -> None:
        """Bring a host's link back."""
        self._ip(host, "link", "set", self.device(host), "up")

    def kill_head(self) -> None:
        """Kill the head's process, which the cluster's state is in."""
        [head] = [one for one in self.processes("a") if one.name() == "gcs_server"]
        self._gcs = head.cmdline(), head.environ()
        head.kill()

    def start_head(self) -> None:
        """Start it again as it was."""
        assert self._gcs is not None
        command, environment = self._gcs
        subprocess.Popen(
            self._inside("a", *command),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def processes(self, host: str) -> list[psutil.Process]:
        """Return the living processes of a host."""
        found = []
        listed = _run("ip", "netns", "pids", self.namespace(host))
        for pid in map(int, listed.split()):
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def end(self) -> None:
        """Kill everything, and remove the namespaces."""
        for host in ADDRESSES:
            wait_until(lambda host=host: self._is_empty(host), f"host {host} empty")  # type: ignore[misc]
            with suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "delete", self.namespace(host))
        if self._redis is not None:
            self._redis.wait()

    def _is_empty(self, host: str) -> bool:
        with suppress(subprocess.CalledProcessError):
            self.kill_host(host)
            return not self.processes(host)
        return True

    def _start_redis(self) -> None:
        options = ("--port", str(REDIS_PORT), "--bind", ADDRESSES["a"], "--save", "")
        command = (str(find_server()), *options, "--protected-mode", "no")
        self._redis = subprocess.Popen(self._inside("a", *command), stdout=subprocess.DEVNULL)
        time.sleep(0.5)

    def _start_ray(self, host: str, *options: str, **environment: str) -> None:
        ray = str(Path(sys.executable).parent / "ray")
        place = f"--node-ip-address={ADDRESSES[host]}"
        folders = (f"--temp-dir={self.folder}/ray",) if "--head" in options else ()
        common = ("--num-cpus=2", "--disable-usage-stats", "--object-store-memory=100000000")
        with (self.folder / f"ray-{host}.log").open("ab") as log:
            subprocess.run(
                self._inside(host, ray, "start", *options, place, *folders, *common),
                env={**self.environment, **environment},
                stdout=log,
                stderr=log,
                check=True,
            )

    def _inside(self, host: str, *command: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.namespace(host), *command)

    def _ip(self, host: str, *words: str) -> None:
        _run("ip", "-n", self.namespace(host), *words)


@contextmanager
def ray_hosts(folder: Path, *, settings: bool = True) -> Iterator[RayHosts]:
    """Make the hosts, and remove them afterwards."""
    hosts = RayHosts(folder, settings=settings)
    with Path("/proc/self/ns/net").open() as outside:
        try:
            hosts.make()
            hosts.enter("a")
            yield hosts
        finally:
            _enter(outside.fileno())
            hosts.end()


def _enter(namespace: int) -> None:
    """Move this process, which has one thread, and what it starts from now on."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
