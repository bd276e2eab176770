"""Processes of a benchmark: each in a group of its own, logged to a file, ended with the bench."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import psutil

from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import Cores, pinned

STOP_SECONDS = 10.0
STOPS = (signal.SIGTERM, signal.SIGHUP)
"""What asks a benchmark to end, besides Ctrl-C."""
LOG_TAIL_BYTES = 6_000
OF_A_PLATFORM = ("PENSTOCK_", "DATABASE_", "REDIS_", "DJANGO_")
"""How the variables begin that would join what is measured to another platform, or to tests."""


def unwind_when_asked() -> None:
    """Let STOPS raise SystemExit, so that whatever was started is stopped on the way out."""
    for number in STOPS:
        signal.signal(number, _unwind)


def _unwind(number: int, _frame: FrameType | None) -> None:
    for one in STOPS:
        signal.signal(one, signal.SIG_IGN)  # once is enough: the way out is not to be cut short
    raise SystemExit(128 + number)


class Child:
    """A started process and where it logs."""

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        log: Path,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.stop_signal = stop_signal

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU time that it and its children have used so far."""
        family = [psutil.Process(self.process.pid)]
        family += family[0].children(recursive=True)
        return sum(sum(member.cpu_times()[:2]) for member in family)

    @property
    def memory_bytes(self) -> int:
        """Return its resident memory, children included."""
        family = [psutil.Process(self.process.pid)]
        family += family[0].children(recursive=True)
        return sum(member.memory_info().rss for member in family)

    def wait_until_answers(self, url: str, *, seconds: float) -> None:
        """Wait until `url` answers 200. Raises BenchmarkFailed with the end of the log."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if _answers(url):
                return
            time.sleep(0.1)
        tail = self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        ended = self.process.poll()
        how = f"was silent for {seconds:g} s" if ended is None else f"ended with code {ended}"
        raise BenchmarkFailed(f"{self.name} {how}; its log ends:\n{tail}")

    def stop(self) -> None:
        """End it and its whole group: asked first, killed after STOP_SECONDS."""
        self._signal(self.stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=STOP_SECONDS)
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    *,
    folder: Path,
    cores: Cores,
    env: Mapping[str, str],
    user: str | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
    pass_fds: Sequence[int] = (),
) -> Iterator[Child]:
    """Run a command on `cores` while the block lasts, with `env` on top of our environment, save
    what is OF_A_PLATFORM there; as another `user` where one is named."""
    log = folder / f"{name}.log"
    with log.open("wb") as sink, pinned(cores):
        process = subprocess.Popen(
            command,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**_inherited(), **env},
            start_new_session=True,
            user=user,
            pass_fds=pass_fds,
            cwd=os.sep if user else None,
        )
    child = Child(name, process, log, stop_signal)
    try:
        yield child
    finally:
        child.stop()


def _inherited() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(OF_A_PLATFORM)}


def free_port() -> int:
    """Return a loopback port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(url: str, *, seconds: float = 5.0) -> bytes:
    """Return the body at a loopback url. Raises OSError unless it answers 200."""
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        return bytes(answer.read())


def _answers(url: str) -> bool:
    try:
        fetch(url, seconds=2.0)
    except (OSError, urllib.error.URLError):
        return False
    return True
