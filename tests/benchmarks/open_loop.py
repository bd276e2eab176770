"""Streams that begin when their time has come, whether others have ended or not, each timed."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import uvloop

from tests.benchmarks.clocked import END, PIECE_BYTES, post
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.target import Target

FRAME = b"data: {"
REFUSED_SECONDS = 1.0
"""After which one of a loop that was refused asks again: the least that it is told."""


@dataclass(frozen=True)
class Arrival:
    """A request: when, seconds from the start; of whom; where to; from which address; for how many
    tokens, where somebody wants to know."""

    at: float
    who: str
    target: Target
    body: bytes
    source: str | None = None
    tokens: int = 0


@dataclass
class Seen:
    """One stream: when it was sent, its status, and when frames and its end came; seconds from the
    start."""

    who: str
    sent_at: float
    tokens: int = 0
    status: int = 0
    ended_at: float = 0.0
    is_whole: bool = False
    frames_at: list[float] = field(default_factory=list)

    @property
    def ttft_ms(self) -> float:
        """From sending to the first frame."""
        return (self.frames_at[0] - self.sent_at) * 1e3

    @property
    def told_ms(self) -> float:
        """From sending to the end, which of a refusal is its words."""
        return (self.ended_at - self.sent_at) * 1e3

    @property
    def gaps_ms(self) -> list[float]:
        """Between frames that came apart."""
        pairs = zip(self.frames_at, self.frames_at[1:], strict=False)
        return [(later - at) * 1e3 for at, later in pairs if later > at]

    def tokens_within(self, start: float, end: float) -> float:
        """Return how many of its tokens came between two moments, by its frames."""
        if not self.is_whole:
            return 0.0
        return self.tokens * sum(start <= at < end for at in self.frames_at) / len(self.frames_at)


def poisson(rates: dict[str, float], seconds: float, seed: int) -> list[tuple[float, str]]:
    """Return who comes when, by requests a second; the same seed is the same trace."""
    chance, trace = Random(seed), []
    for who, rate in sorted(rates.items()):
        at = chance.expovariate(rate)
        while at < seconds:
            trace.append((at, who))
            at += chance.expovariate(rate)
    return sorted(trace)


def play(
    arrivals: Iterable[Arrival], loops: Sequence[Iterator[Arrival]] = (), until: float = 0.0
) -> list[Seen]:
    """Send all, and beside them each of `loops` one after the other until its time is over.

    Raises BenchmarkFailed when a connection fails.
    """
    return uvloop.run(_play(list(arrivals), loops, until))


async def _play(
    arrivals: list[Arrival], loops: Sequence[Iterator[Arrival]], until: float
) -> list[Seen]:
    began = time.perf_counter()
    seen: list[Seen] = []
    tasks = [asyncio.create_task(_at(arrival, began, seen)) for arrival in arrivals]
    tasks += [asyncio.create_task(_again(loop, began, until, seen)) for loop in loops]
    try:
        await asyncio.gather(*tasks)
    except OSError as error:
        raise BenchmarkFailed(f"a stream could not be sent: {error}") from error
    return seen


async def _at(arrival: Arrival, began: float, seen: list[Seen]) -> None:
    await asyncio.sleep(arrival.at - (time.perf_counter() - began))
    seen.append(await _stream(arrival, began))


async def _again(loop: Iterator[Arrival], began: float, until: float, seen: list[Seen]) -> None:
    for arrival in loop:
        if time.perf_counter() - began >= until:
            return
        seen.append(await _stream(arrival, began))
        if seen[-1].status != 200:
            await asyncio.sleep(REFUSED_SECONDS)


async def _stream(arrival: Arrival, began: float) -> Seen:
    seen = Seen(arrival.who, time.perf_counter() - began, arrival.tokens)
    source = None if arrival.source is None else (arrival.source, 0)
    reader, writer = await asyncio.open_connection(*arrival.target.address, local_addr=source)
    try:
        writer.write(post(arrival.target, arrival.body))
        data = b""
        while not data.endswith(END):
            piece = await reader.read(PIECE_BYTES)
            if not piece:
                break
            now = time.perf_counter() - began
            seen.frames_at += [now] * (data[-len(FRAME) + 1 :] + piece).count(FRAME)
            data += piece
            if b"\r\n\r\n" in data and not data.startswith(b"HTTP/1.1 200"):
                break
        seen.ended_at = time.perf_counter() - began
        seen.status = int(data[9:12] or 0)
        seen.is_whole = seen.status == 200 and b"data: [DONE]" in data
    finally:
        writer.close()
    return seen
