"""A gateway that reads control's feed and measures itself doing so, told as one line of JSON.

`python -m tests.benchmarks.feed_reader --control-url URL --credential C --folder DIR --keys N`. It
is the real one, in the loop of production, beside a clock that ticks every millisecond.
"""

import asyncio
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
import psutil
import typer
import uvloop

from serving import telemetry
from serving.contract.codec import encode
from serving.contract.feed import DELETED, RECORD_OF_KIND, FeedChange, FeedPage
from serving.contract.records import DEFAULT_FLEET
from serving.feed.changes import parts
from serving.gateway.__main__ import relieve_collector
from serving.gateway.config import GatewayConfig
from serving.gateway.directory import Directory
from serving.gateway.gateway import build
from tests.benchmarks.published import digest_of, key_of, organization_of, project_of

TICK_SECONDS = 0.001
LOOKED_UP = 2_000
CHANGED = 2_000
NOBODY = "http://127.0.0.1:9"
SECRET = "of-a-benchmark-0123456789"


class Measured(msgspec.Struct):
    """Seconds since the start, milliseconds of stalls, microseconds of each change and look-up."""

    loaded_seconds: float
    serving_seconds: float
    saved_seconds: float
    stall_ms: float
    stall_cpu_ms: float
    bare_bytes: int
    resident_bytes: int
    peak_bytes: int
    change_us: dict[str, list[float]]
    cold_us: list[float]
    known_us: list[float]
    unknown_us: list[float]


@dataclass
class Ticker:
    """The longest time that the loop was held: by the clock, and of its thread's CPU time."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    _at: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.thread_time()))

    def tick(self) -> None:
        """Look at the clock, and again as soon as a millisecond is over."""
        now, cpu = time.monotonic(), time.thread_time()
        self.seconds = max(self.seconds, now - self._at[0] - TICK_SECONDS)
        self.cpu_seconds = max(self.cpu_seconds, cpu - self._at[1])
        self._at = now, cpu
        asyncio.get_running_loop().call_later(TICK_SECONDS, self.tick)


async def measure(config: GatewayConfig, keys: int) -> Measured:
    """Start, wait until all of the feed is known and saved, look keys up, change some."""
    gateway = build(config)
    relieve_collector()
    bare_bytes = psutil.Process().memory_info().rss
    ticker, began = Ticker(), time.monotonic()
    ticker.tick()
    await gateway.load()
    loaded_seconds = time.monotonic() - began
    gateway.start()
    await _until(lambda: gateway.directory.authenticator.is_complete)
    serving_seconds = time.monotonic() - began
    feed = gateway.control_feed
    await _until(lambda: feed.state_writer.saved_version == feed.mirror.version)
    saved_seconds = time.monotonic() - began
    stall, stall_cpu = ticker.seconds, ticker.cpu_seconds
    resident_bytes = psutil.Process().memory_info().rss
    directory = gateway.directory
    known = [digest_of(number) for number in range(0, keys, max(keys // LOOKED_UP, 1))]
    measured = Measured(
        loaded_seconds,
        serving_seconds,
        saved_seconds,
        stall * 1e3,
        stall_cpu * 1e3,
        bare_bytes,
        resident_bytes,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        cold_us=_look_up(directory, known, is_known=True),
        known_us=_look_up(directory, known, is_known=True),
        unknown_us=_look_up(
            directory, [digest_of(-n) for n in range(1, LOOKED_UP)], is_known=False
        ),
        change_us=_change(directory, keys),
    )
    await gateway.stop()
    return measured


def _look_up(directory: Directory, digests: list[str], *, is_known: bool) -> list[float]:
    spent = []
    for digest in digests:
        began = time.perf_counter()
        principal = directory.principal(digest)
        spent.append((time.perf_counter() - began) * 1e6)
        assert (principal is not None) == is_known
    return spent


def _change(directory: Directory, keys: int) -> dict[str, list[float]]:
    """Decode and take in changes one by one, as each is told alone."""
    every = max(keys // CHANGED, 1)
    spent: dict[str, list[float]] = {}
    for number in range(0, keys, every):
        key, project, organization = key_of(number), project_of(number), organization_of(number)
        for name, change in {
            "a key": ("api_key", key.key_id, encode(key)),
            "a project": ("project", project.project_id, encode(project)),
            "an organization": ("organization", organization.organization_id, encode(organization)),
            "a revocation": ("api_key", key.key_id, bytes(DELETED)),
        }.items():
            kind, id_, record = change
            told = FeedChange(1, kind, id_, msgspec.Raw(record))
            page = FeedPage(directory.mirror.version, False, (told,), directory.mirror.lineage)
            directory.principal(key.digest)
            began = time.perf_counter()
            for batch in parts(page, RECORD_OF_KIND, begins=True):
                directory.apply(batch)
            spent.setdefault(name, []).append((time.perf_counter() - began) * 1e6)
        assert directory.principal(key.digest) is None
    return spent


async def _until(claim: Callable[[], bool]) -> None:
    while not claim():  # noqa: ASYNC110 -- whatever the claim is about
        await asyncio.sleep(0.005)


def main(
    control_url: Annotated[str, typer.Option()],
    credential: Annotated[str, typer.Option()],
    folder: Annotated[Path, typer.Option()],
    keys: Annotated[int, typer.Option()],
) -> None:
    """Measure once."""
    telemetry.configure("json")
    config = GatewayConfig(
        host="127.0.0.1",
        port=0,
        operator_host="127.0.0.1",
        operator_port=0,
        directory=folder,
        control_url=control_url,
        fleet_urls={DEFAULT_FLEET: NOBODY},
        credential=credential,
        key_peppers=(SECRET,),
        salt_secret=SECRET,
    )
    measured = uvloop.run(measure(config, keys))
    print(encode(measured).decode())


if __name__ == "__main__":
    typer.run(main)
