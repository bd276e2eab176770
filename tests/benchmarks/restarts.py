"""Rolling restarts: three gateways on one socket are restarted in turn under streams, over and
over; nobody may be cut off or refused."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import aiohttp
import typer

from tests.benchmarks.contest import bodies
from tests.benchmarks.engine_counters import counter
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import ANYWHERE
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import free_port
from tests.benchmarks.report import Row, Table, percentile
from tests.benchmarks.stage import Behind, Gateway, mock_engine
from tests.benchmarks.target import Target
from tests.benchmarks.wrk import CHAT

GATEWAYS = 3
STREAMS = 200
TOKENS = 20
ITL_MS = 100.0
BETWEEN_SECONDS = 0.5
END = b"data: [DONE]\n\n"


@dataclass
class Seen:
    """How streams ended, and the seconds that each waited for its first byte."""

    right: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    first_byte: list[float] = field(default_factory=list)


class Gateways:
    """The gateways in their places; each place keeps its folder and ports through restarts."""

    def __init__(self, behind: Behind, plan: Plan, listening: socket.socket) -> None:
        self._behind = behind
        self._folder = plan.folder
        self._descriptor = listening.fileno()
        self._ports = [free_port() for _ in range(GATEWAYS)]
        self._running: list[ExitStack] = [self._start(port) for port in self._ports]

    def restart(self, place: int) -> float:
        """End one in order and start it anew; return the seconds until it is ready again."""
        began = time.monotonic()
        self._running[place].close()
        self._running[place] = self._start(self._ports[place])
        return time.monotonic() - began

    def end(self) -> None:
        """End them all."""
        for one in self._running:
            one.close()

    def _start(self, port: int) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(
            self._behind.gateway(
                folder=self._folder,
                cores=ANYWHERE,
                descriptor=self._descriptor,
                operator_port=port,
            )
        )
        return stack


def measure(plan: Plan) -> Table:
    """Return what streams saw while every gateway was restarted `--rounds` times. Raises
    BenchmarkFailed if one was cut off, refused or not booked."""
    with (
        mock_engine(folder=plan.folder, split=plan.split, itl_ms=ITL_MS) as engine,
        Behind.one(engine.base_url, folder=plan.folder, split=plan.split) as behind,
        socket.create_server(("127.0.0.1", 0), backlog=1_024) as listening,
        _gateways(behind, plan, listening) as gateways,
    ):
        url = f"http://127.0.0.1:{listening.getsockname()[1]}{CHAT}"
        before = counter(engine.base_url, "mock:requests_total")
        seen, seconds = asyncio.run(_restarts(gateways, url, behind.api_key, plan.rounds))
        requests = round(counter(engine.base_url, "mock:requests_total") - before)
        own = Gateway(Target("Penstock", url), behind.stand_in_url)
        tally = own.wait_until_booked(answers=seen.right, requests=requests)
    if seen.wrong or tally.wrong_charges or tally.completed != seen.right:
        raise BenchmarkFailed(f"{seen.right} streams right, others {dict(seen.wrong)}; {tally}")
    rows = [
        Row("streams, whole and right", "Penstock", "", [seen.right]),
        Row("streams cut off or refused", "Penstock", "", [0]),
        Row("p50 TTFT", "Penstock", "ms", [percentile(seen.first_byte, 50) * 1e3]),
        Row("p99 TTFT", "Penstock", "ms", [percentile(seen.first_byte, 99) * 1e3]),
        Row("longest TTFT", "Penstock", "ms", [max(seen.first_byte) * 1e3]),
        Row("one gateway's restart", "Penstock", "s", seconds),
    ]
    check = (
        f"{tally.completed:,} events completed, one for each stream, every charge right;"
        f" {tally.duplicates:,} were told again by a gateway that ended before it heard of its"
        " receipt, and booked once"
    )
    title = f"Rolling restarts: {GATEWAYS} gateways, {STREAMS} streams, {plan.rounds} rounds"
    return Table(title, rows, [check], _remarks())


def _remarks() -> list[str]:
    return [
        f"Each stream takes {TOKENS * ITL_MS / 1e3:g} s and a connection of its own; gateways share"
        " one socket, are told to end by SIGTERM, and start on the folder that they left.",
    ]


@contextmanager
def _gateways(behind: Behind, plan: Plan, listening: socket.socket) -> Iterator[Gateways]:
    gateways = Gateways(behind, plan, listening)
    try:
        yield gateways
    finally:
        gateways.end()


async def _restarts(
    gateways: Gateways, url: str, api_key: str, rounds: int
) -> tuple[Seen, list[float]]:
    seen, ending, seconds = Seen(), asyncio.Event(), list[float]()
    # A connection that is kept may close just as it is written to; a client asks again then.
    lines = aiohttp.TCPConnector(limit=0, force_close=True)
    headers = {"authorization": f"Bearer {api_key}", "content-type": "application/json"}
    async with aiohttp.ClientSession(headers=headers, connector=lines) as session:
        asked = bodies(max_tokens=TOKENS, stream=True)
        clients = [
            asyncio.create_task(_client(session, url, asked[number % len(asked)], seen, ending))
            for number in range(STREAMS)
        ]
        for turn in range(rounds):
            typer.echo(f"  {turn + 1} of {rounds}", err=True)
            for place in range(GATEWAYS):
                seconds.append(await asyncio.to_thread(gateways.restart, place))
                await asyncio.sleep(BETWEEN_SECONDS)
        ending.set()
        await asyncio.gather(*clients)
    return seen, seconds


async def _client(
    session: aiohttp.ClientSession, url: str, body: bytes, seen: Seen, ending: asyncio.Event
) -> None:
    while not ending.is_set():
        began = time.monotonic()
        try:
            async with session.post(url, data=body) as reply:
                first = await reply.content.readany()
                seen.first_byte.append(time.monotonic() - began)
                text = first + await reply.read()
        except aiohttp.ClientError as error:
            seen.wrong[type(error).__name__] += 1
            continue
        if reply.status == 200 and text.endswith(END):
            seen.right += 1
        else:
            seen.wrong[f"{reply.status}, ended {text[-40:]!r}"] += 1
