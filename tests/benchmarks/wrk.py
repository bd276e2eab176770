"""wrk, the load generator: one run is one closed loop of connections that checks every answer."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import Cores, pinned

SCRIPT = Path(__file__).with_name("answers.lua")
REQUEST_TIMEOUT_SECONDS = 30


CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Load:
    """What to send: bodies in turn, how many connections, what a right answer contains, to which
    route, and with whose keys in turn, where it is not one."""

    bodies: Sequence[bytes]
    connections: int
    seconds: int
    proof: str
    frames_min: int = 0
    path: str = CHAT
    api_keys: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome:
    """What wrk saw; times in microseconds. Requests cut off at the end are not counted."""

    seconds: float
    answers: int
    frames: int
    wrong: int
    first_wrong: str
    socket_errors: int
    timeouts: int
    p50_us: int
    p99_us: int
    max_us: int

    @property
    def answers_per_second(self) -> float:
        return self.answers / self.seconds

    def require_right(self, target: str) -> None:
        """Raise BenchmarkFailed unless every request was answered, and rightly."""
        if self.answers and not (self.wrong or self.socket_errors or self.timeouts):
            return
        raise BenchmarkFailed(
            f"{target}: of {self.answers} answers {self.wrong} were wrong"
            f" (first: {self.first_wrong!r}), {self.socket_errors} socket errors,"
            f" {self.timeouts} time-outs"
        )


def find_wrk() -> str:
    """Return wrk's path, installing Debian's package when root. Raises BenchmarkFailed."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for words in (["update", "-qq"], ["install", "-y", "-qq", "wrk"]):
            subprocess.run(["apt-get", *words], check=False, capture_output=True, timeout=120)
    if found := shutil.which("wrk"):
        return found
    raise BenchmarkFailed(
        "wrk is not on the PATH: apt install wrk, dnf install wrk, brew install wrk"
    )


def version() -> str:
    """Return wrk's version line."""
    said = subprocess.run([find_wrk(), "--version"], check=False, capture_output=True, text=True)
    return said.stdout.splitlines()[0].split(" Copyright")[0]


def run(
    url: str,
    load: Load,
    *,
    headers: dict[str, str],
    cores: Cores,
    meanwhile: Callable[[], None] = lambda: None,
) -> Outcome:
    """Send `load` to `url` for its seconds; `meanwhile` runs while wrk does."""
    with tempfile.TemporaryDirectory(prefix="penstock-wrk-") as folder:
        bodies, api_keys = Path(folder, "bodies"), Path(folder, "keys")
        bodies.write_bytes(b"\n".join(load.bodies))
        api_keys.write_text("\n".join(load.api_keys))
        command = [*_command(url, load, headers), str(bodies), load.proof, str(load.frames_min)]
        with pinned(cores):
            process = subprocess.Popen([*command, str(api_keys)], stdout=subprocess.PIPE, text=True)
        try:
            meanwhile()
            output, _ = process.communicate(timeout=load.seconds + REQUEST_TIMEOUT_SECONDS)
        finally:
            process.kill()
    return _read(output)


def _command(url: str, load: Load, headers: dict[str, str]) -> list[str]:
    command = [find_wrk(), "--threads", "1", "--connections", str(load.connections)]
    command += ["--duration", f"{load.seconds}s", "--timeout", f"{REQUEST_TIMEOUT_SECONDS}s"]
    command += ["--script", str(SCRIPT), "--header", "content-type: application/json"]
    for name, value in headers.items():
        command += ["--header", f"{name}: {value}"]
    return [*command, url, "--"]


def _read(output: str) -> Outcome:
    for line in output.splitlines():
        if line.startswith("RESULT "):
            return Outcome(**json.loads(line.removeprefix("RESULT ")))
    raise BenchmarkFailed(f"wrk gave no result: {output[-500:]!r}")
