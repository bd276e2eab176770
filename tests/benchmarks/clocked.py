"""Streams timed byte by byte, as wrk cannot: to the first, to the last, and from stamp to here."""

import asyncio
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.target import Target
from tests.benchmarks.wrk import CHAT

END = b"0\r\n\r\n"
PIECE_BYTES = 65_536
STAMP = re.compile(rb'" (\d{19})"')
"""What the paced mock says instead of words: the nanosecond it did."""


@dataclass
class Times:
    """Milliseconds from a request, one stream after the other."""

    to_first_byte: list[float] = field(default_factory=list)
    to_end: list[float] = field(default_factory=list)


def post(target: Target, body: bytes) -> bytes:
    """Return a request as bytes."""
    lines = [f"POST {CHAT} HTTP/1.1", "host: bench"]
    lines += [f"{name}: {value}" for name, value in target.headers.items()]
    lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def time_streams(target: Target, bodies: Sequence[bytes], seconds: float) -> Times:
    """Ask for one stream after the other on one connection. Raises BenchmarkFailed."""
    times, until, turn = Times(), time.monotonic() + seconds, 0
    requests = [post(target, body) for body in bodies]
    with socket.create_connection(target.address) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.monotonic() < until:
            began = time.perf_counter()
            line.sendall(requests[turn % len(requests)])
            data = b""
            while b"data: " not in data:
                data += _more(line, data)
            times.to_first_byte.append((time.perf_counter() - began) * 1e3)
            while not data.endswith(END):
                data += _more(line, data)
            times.to_end.append((time.perf_counter() - began) * 1e3)
            turn += 1
            if not data.startswith(b"HTTP/1.1 200") or b"data: [DONE]" not in data:
                raise BenchmarkFailed(f"{target.name}: a stream is not right: {data[:300]!r}")
    return times


def _more(line: socket.socket, so_far: bytes) -> bytes:
    data = line.recv(PIECE_BYTES)
    if not data:
        raise BenchmarkFailed(f"a stream broke off after {so_far[-300:]!r}")
    return data


class Probe:
    """A few streams beside many: the milliseconds of each chunk from the mock to here."""

    def __init__(self, target: Target, bodies: Sequence[bytes], streams: int) -> None:
        self.delays_ms: list[float] = []
        self._address = target.address
        self._requests = [post(target, body) for body in bodies[:streams]]

    def __call__(self, seconds: float) -> None:
        """Read for so long."""
        asyncio.run(self._read_for(seconds))

    async def _read_for(self, seconds: float) -> None:
        reading = [asyncio.create_task(self._read(request)) for request in self._requests]
        await asyncio.sleep(seconds)
        for task in reading:
            task.cancel()
        for ended in await asyncio.gather(*reading, return_exceptions=True):
            if not isinstance(ended, asyncio.CancelledError):
                raise BenchmarkFailed(f"a probe ended early: {ended!r}")
        if not self.delays_ms:  # whoever got nothing waited all the time
            self.delays_ms.append(seconds * 1_000)

    async def _read(self, request: bytes) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            while True:
                writer.write(request)
                data = b""
                while not data.endswith(END):
                    data = await reader.read(PIECE_BYTES)
                    now = time.monotonic_ns()
                    found = STAMP.findall(data)
                    self.delays_ms += [(now - int(stamp)) / 1e6 for stamp in found]
                    if not data:
                        raise ConnectionError("closed")
        finally:
            writer.close()
