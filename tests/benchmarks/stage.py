"""The gateway as it really runs, on one core, with a stand-in for control, billing and fleet."""

import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from serving.contract.key import digest, make_secret
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import Split
from tests.benchmarks.process import Child, fetch, free_port, running
from tests.benchmarks.stand_in import Tally
from tests.benchmarks.target import Target

START_SECONDS = 30.0
BOOKING_SECONDS = 30.0
LATE_SECONDS = 0.5


@dataclass(frozen=True)
class Gateway:
    """A running gateway, and the books of the billing behind it."""

    target: Target
    stand_in_url: str

    def tally(self) -> Tally:
        """Return what billing was told so far."""
        return msgspec.json.decode(fetch(f"{self.stand_in_url}/tally"), type=Tally)

    def wait_until_booked(self, *, answers: int, requests: int) -> Tally:
        """Wait until billing knows of all `answers` and all `requests` of the engine, and return
        its tally a moment later, so that what came late counts too. Raises BenchmarkFailed.
        """
        deadline = time.monotonic() + BOOKING_SECONDS
        while not _knows(self.tally(), answers, requests):
            if time.monotonic() > deadline:
                raise BenchmarkFailed(
                    f"{answers} answers and {requests} requests, but billing has {self.tally()}"
                )
            time.sleep(0.2)
        time.sleep(LATE_SECONDS)
        return self.tally()


def _knows(tally: Tally, answers: int, requests: int) -> bool:
    return tally.completed >= answers and tally.completed + tally.others >= requests


@contextmanager
def mock_engine(*, folder: Path, split: Split, itl_ms: float = 0.0) -> Iterator[Target]:
    """Run the mock engine beside the load."""
    port = free_port()
    command = [sys.executable, "-m", "tests.benchmarks.mock"]
    command += ["--port", str(port), "--itl-ms", str(itl_ms)]
    with running(f"mock-{port}", command, folder=folder, cores=split.others, env={}) as child:
        child.wait_until_answers(f"http://127.0.0.1:{port}/health", seconds=START_SECONDS)
        yield Target("direct", f"http://127.0.0.1:{port}")


@contextmanager
def gateway(engine_url: str, *, folder: Path, split: Split) -> Iterator[Gateway]:
    """Run a gateway on the measured core, with a journal and a key of its own."""
    pepper, api_key = secrets.token_hex(16), make_secret("live", secrets.choice)
    with ExitStack() as stack:
        options = ["--engine-url", engine_url, "--digest", digest(api_key, pepper.encode())]
        stand_in_url = stack.enter_context(_stand_in(options, folder=folder, split=split))
        port, operator_port = free_port(), free_port()
        env = {
            "PENSTOCK_GATEWAY_HOST": "127.0.0.1",
            "PENSTOCK_GATEWAY_PORT": str(port),
            "PENSTOCK_GATEWAY_OPERATOR_PORT": str(operator_port),
            "PENSTOCK_GATEWAY_DIR": str(folder / f"gateway-{port}"),
            "PENSTOCK_CONTROL_URL": stand_in_url,
            "PENSTOCK_FLEET_URL": stand_in_url,
            "PENSTOCK_INTERNAL_SECRET": secrets.token_hex(16),
            "PENSTOCK_KEY_PEPPER": pepper,
            "PENSTOCK_SALT_SECRET": secrets.token_hex(16),
            "PENSTOCK_LOG_FORMAT": "json",
        }
        command = [sys.executable, "-m", "serving.gateway"]
        child = stack.enter_context(
            running(f"gateway-{port}", command, folder=folder, cores=split.measured, env=env)
        )
        _wait_until_ready(child, operator_port)
        yield Gateway(Target("Penstock", f"http://127.0.0.1:{port}", api_key, child), stand_in_url)


@contextmanager
def _stand_in(options: list[str], *, folder: Path, split: Split) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.benchmarks.stand_in", "--port", str(port), *options]
    with running(f"stand-in-{port}", command, folder=folder, cores=split.others, env={}) as child:
        child.wait_until_answers(f"http://127.0.0.1:{port}/tally", seconds=START_SECONDS)
        yield f"http://127.0.0.1:{port}"


def _wait_until_ready(child: Child, operator_port: int) -> None:
    child.wait_until_answers(f"http://127.0.0.1:{operator_port}/readyz", seconds=START_SECONDS)
