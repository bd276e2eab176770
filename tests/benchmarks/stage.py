"""The gateway as it really runs, on one core, with a stand-in for control, billing and fleet."""

import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from serving.contract.api_key import digest, make_secret
from serving.contract.credential import ServiceIdentity, issue
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import Cores, Split
from tests.benchmarks.process import Child, fetch, free_port, running
from tests.benchmarks.stand_in import CONTEXT_TOKENS, QUEUE_SECONDS, SLOTS, Tally
from tests.benchmarks.target import Target

GATEWAY = ServiceIdentity("gateway", "bench")
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
def gateway(
    engine_url: str, *, folder: Path, split: Split, dimensions: int | None = None
) -> Iterator[Gateway]:
    """Run a gateway on the measured core, with a journal and a key of its own; an engine of so many
    `dimensions` embeds."""
    port = free_port()
    with (
        Behind.one(engine_url, folder=folder, split=split, dimensions=dimensions) as behind,
        behind.gateway(folder=folder, cores=split.measured, port=port) as child,
    ):
        target = Target("Penstock", f"http://127.0.0.1:{port}", behind.api_key, child)
        yield Gateway(target, behind.stand_in_url)


@dataclass(frozen=True)
class Behind:
    """What gateways need to run: a stand-in for control, billing and fleet, secrets, and a key of
    each organization."""

    stand_in_url: str
    pepper: str
    api_keys: tuple[str, ...]
    credential: str
    redis_url: str = ""

    @property
    def api_key(self) -> str:
        """The first organization's."""
        return self.api_keys[0]

    @classmethod
    @contextmanager
    def one(
        cls,
        *engine_urls: str,
        folder: Path,
        split: Split,
        dimensions: int | None = None,
        queue_seconds: float = QUEUE_SECONDS,
        organizations: int = 1,
        slots: int = SLOTS,
        context_tokens: int = CONTEXT_TOKENS,
        redis_url: str = "",
    ) -> Iterator["Behind"]:
        """Run a stand-in before engines."""
        pepper = secrets.token_hex(16)
        api_keys = tuple(make_secret(secrets.choice) for _ in range(organizations))
        options = ["--slots", str(slots), "--context-tokens", str(context_tokens)]
        for url in engine_urls:
            options += ["--engine-url", url]
        for api_key in api_keys:
            options += ["--digest", digest(api_key, pepper.encode())]
        options += ["--queue-seconds", str(queue_seconds)]
        if dimensions is not None:
            options += ["--dimensions", str(dimensions)]
        with _stand_in(options, folder=folder, split=split) as url:
            yield cls(url, pepper, api_keys, issue(secrets.token_hex(16), GATEWAY), redis_url)

    @contextmanager
    def gateway(
        self,
        *,
        folder: Path,
        cores: Cores,
        port: int = 0,
        descriptor: int | None = None,
        operator_port: int | None = None,
    ) -> Iterator[Child]:
        """Run a gateway on a port of its own, or on a socket that is open under a descriptor. Its
        folder is named by its `operator_port`: whoever starts it with the same finds its journal.
        """
        operator_port = operator_port or free_port()
        env = {
            "PENSTOCK_GATEWAY_HOST": "127.0.0.1",
            "PENSTOCK_GATEWAY_PORT": str(port),
            "PENSTOCK_GATEWAY_FD": "" if descriptor is None else str(descriptor),
            "PENSTOCK_GATEWAY_OPERATOR_PORT": str(operator_port),
            "PENSTOCK_GATEWAY_DATA_DIR": str(folder / f"gateway-{operator_port}"),
            "PENSTOCK_INTERNAL_API_URL": self.stand_in_url,
            "PENSTOCK_FLEET_URL": self.stand_in_url,
            "PENSTOCK_INTERNAL_CREDENTIAL": self.credential,
            "PENSTOCK_KEY_PEPPER": self.pepper,
            "PENSTOCK_SALT_SECRET": "of-a-benchmark-0123456789",
            "PENSTOCK_LOG_FORMAT": "json",
            "REDIS_URL": self.redis_url,
        }
        command = [sys.executable, "-m", "serving.gateway"]
        name, given = f"gateway-{operator_port}", () if descriptor is None else (descriptor,)
        with running(name, command, folder=folder, cores=cores, env=env, pass_fds=given) as child:
            _wait_until_ready(child, operator_port)
            yield child


@contextmanager
def null_relay(engine_url: str, *, folder: Path, split: Split) -> Iterator[Target]:
    """Run the null relay on the measured core."""
    port = free_port()
    command = [sys.executable, "-m", "tests.benchmarks.null_relay"]
    command += ["--port", str(port), "--engine-url", engine_url]
    with running(f"relay-{port}", command, folder=folder, cores=split.measured, env={}) as child:
        child.wait_until_answers(f"http://127.0.0.1:{port}/health", seconds=START_SECONDS)
        yield Target("null relay", f"http://127.0.0.1:{port}", child=child)


@contextmanager
def _stand_in(options: list[str], *, folder: Path, split: Split) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.benchmarks.stand_in", "--port", str(port), *options]
    with running(f"stand-in-{port}", command, folder=folder, cores=split.others, env={}) as child:
        child.wait_until_answers(f"http://127.0.0.1:{port}/tally", seconds=START_SECONDS)
        yield f"http://127.0.0.1:{port}"


def _wait_until_ready(child: Child, operator_port: int) -> None:
    child.wait_until_answers(f"http://127.0.0.1:{operator_port}/readyz", seconds=START_SECONDS)
