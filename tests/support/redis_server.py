"""A real Redis for a test, which may be stopped, frozen, emptied and told to refuse scripts."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from infra.local.redis_server import find_server
from tests.support.environment import free_port_base

START_SECONDS = 10.0


class RedisServer:
    """One server on a port of its own; what it knew is gone when it starts again."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port_base(1)
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.client = redis.Redis.from_url(self.url)

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "")
        command = [str(find_server()), *options, "--dir", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._listens():
            assert time.monotonic() < deadline, "Redis did not start"
            assert self._process.poll() is None, "Redis ended"
            time.sleep(0.01)

    def stop(self) -> None:
        """End it, frozen or not."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Have it hang: it takes connections and says nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on where it was."""
        self._signal(signal.SIGCONT)

    def flush(self) -> None:
        """Have it forget all."""
        self.client.flushall()

    def refuse_scripts(self) -> None:
        """Let nobody run scripts any more."""
        self.client.acl_setuser("default", enabled=True, categories=["-@scripting"])

    def allow_scripts(self) -> None:
        """Let everybody run scripts again."""
        self.client.acl_setuser("default", enabled=True, categories=["+@scripting"])

    def refuse_writes(self) -> None:
        """Have no memory left."""
        self.client.config_set("maxmemory", 1)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)):
                return False
        return bool(self.client.ping())


@contextmanager
def running_redis(folder: Path) -> Iterator[RedisServer]:
    """Run a Redis while the block lasts."""
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.client.close()
        server.stop()
