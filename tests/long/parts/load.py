"""The clients of the bad days: so many requests a second, half of them streams, from a process in
the host's network. They remember what they sent and what they got.

`python -m tests.long.parts.load` is that process: it writes a line of JSON for each request that
begins and for each that ends, and at SIGTERM sends no more and waits for what runs.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from infra.local.config import ROOT
from tests.long.parts import PartFailed
from tests.long.parts.host import wait_for
from tests.long.parts.installation import API, CERTIFICATE, Installation

PER_SECOND = 24.0
STREAM_TOKENS, WHOLE_TOKENS = 22, 2
"""Tokens of a stream, and of a response in one piece."""
TOKEN_SECONDS = 0.25
"""The simulated engine's: a stream takes 5.5 s."""
IN_FLIGHT_MIN = 30
REQUEST_SECONDS_MAX = 120
LOST = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as its client saw it end. `began` and `ended` are Unix time in seconds;
    `request_id` is "" where no response began."""

    client_id: str
    is_stream: bool
    began: float
    ended: float
    status: int
    is_whole: bool
    request_id: str
    tokens: int
    error: str

    @property
    def is_served(self) -> bool:
        """Whether the client got all of the response."""
        return self.status == 200 and self.is_whole


@dataclass
class Load:
    """The clients at work, read from what their process has written."""

    path: Path
    ended: list[SentRequest] = field(default_factory=list)
    under_way: dict[str, float] = field(default_factory=dict)
    """When the requests in flight began, by the client's id."""
    _read: int = 0

    def read(self) -> "Load":
        """Take in what was written since the last time."""
        with self.path.open() as file:
            file.seek(self._read)
            while (line := file.readline()).endswith("\n"):
                self._read = file.tell()
                self._take(json.loads(line))
        return self

    def _take(self, written: dict[str, Any]) -> None:
        if "ended" in written:
            request = SentRequest(**written)
            self.ended.append(request)
            self.under_way.pop(request.client_id)
        else:
            self.under_way[written["client_id"]] = written["began"]

    def in_flight(self) -> int:
        """Return how many requests are in flight now."""
        return len(self.read().under_way)

    def is_past(self, moment: float, *, count: int) -> bool:
        """Tell whether all requests that began before a moment have ended, and so many that began
        after it."""
        self.read()
        after = sum(request.began > moment for request in self.ended)
        return after >= count and not any(began <= moment for began in self.under_way.values())


@contextmanager
def running_load(installation: Installation, api_key: str, model: str) -> Iterator[Load]:
    """Run the clients while the block lasts, and then wait for what runs. Raises PartFailed if
    their process failed."""
    host = installation.host
    path = host.folder / "requests.jsonl"
    path.write_text("")
    certificate = host.root / CERTIFICATE.lstrip("/")
    options = ("--model", model, "--out", str(path), "--certificate", str(certificate))
    command = host.outside([sys.executable, "-m", "tests.long.parts.load", *options])
    environment = {**os.environ, "PENSTOCK_TEST_API_KEY": api_key}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    load = Load(path)
    try:
        wait_for(
            lambda: load.in_flight() >= IN_FLIGHT_MIN or process.poll() is not None, "the load"
        )
        yield load
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=REQUEST_SECONDS_MAX + 60)
        if process.returncode:
            raise PartFailed(f"the clients ended with {process.returncode}: {errors[-2000:]}")
        load.read()


class Clients:
    """The process of the clients."""

    def __init__(self, options: argparse.Namespace, session: aiohttp.ClientSession) -> None:
        self._session, self._model = session, options.model
        self._out = options.out.open("a")
        self._prefix = f"bad-{int(time.time())}"
        self.running: set[asyncio.Task[None]] = set()

    def send(self, number: int) -> None:
        """Begin a request: every other one is a stream."""
        task = asyncio.create_task(
            self._send(f"{self._prefix}-{number}", is_stream=number % 2 == 0)
        )
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def _send(self, client_id: str, *, is_stream: bool) -> None:
        began = time.time()
        self._write({"client_id": client_id, "began": began})
        tokens = STREAM_TOKENS if is_stream else WHOLE_TOKENS
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": tokens,
            "min_tokens": tokens,
            "messages": [{"role": "user", "content": f"What is {client_id}?"}],
        }
        if is_stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        seen: dict[str, Any] = {
            "status": 0, "is_whole": False, "request_id": "", "tokens": 0, "error": "",
        }  # fmt: skip
        try:
            await self._receive(body, client_id, seen)
        except LOST as error:
            seen["error"] = repr(error)[:300]
        ended = {"client_id": client_id, "is_stream": is_stream, "began": began}
        self._write({**ended, "ended": time.time(), **seen})

    async def _receive(self, body: dict[str, Any], client_id: str, seen: dict[str, Any]) -> None:
        """Fill in what is seen of a response as it comes. Raises LOST."""
        headers = {"x-client-request-id": client_id}
        async with self._session.post(f"{API}/chat/completions", json=body, headers=headers) as got:
            seen["status"] = got.status
            seen["request_id"] = got.headers.get("x-request-id", "")
            if got.status != 200:
                seen["error"] = (await got.text())[:300]
                return
            if not body.get("stream"):
                usage = (await got.json())["usage"]
                seen.update(tokens=usage["completion_tokens"], is_whole=True)
                return
            async for line in got.content:
                if line.startswith(b"data: [DONE]"):
                    seen["is_whole"] = True
                elif line.startswith(b"data: {"):
                    self._read_chunk(json.loads(line[6:]), seen)

    def _read_chunk(self, chunk: dict[str, Any], seen: dict[str, Any]) -> None:
        if usage := chunk.get("usage"):
            seen["tokens"] = usage["completion_tokens"]
        if error := chunk.get("error"):
            seen["error"] = json.dumps(error)[:300]

    def _write(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()


async def send_until_told(options: argparse.Namespace) -> None:
    """Send requests at their times, whatever became of those before, until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    tls = ssl.create_default_context(cafile=options.certificate)
    headers = {"authorization": f"Bearer {os.environ['PENSTOCK_TEST_API_KEY']}"}
    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS_MAX)
    connector = aiohttp.TCPConnector(limit=0, ssl=tls)
    async with aiohttp.ClientSession(
        headers=headers, timeout=timeout, connector=connector
    ) as session:
        clients, began = Clients(options, session), time.monotonic()
        for number in itertools.count():
            pause = began + number / PER_SECOND - time.monotonic()
            try:
                async with asyncio.timeout(max(pause, 0.0)):
                    await stopping.wait()
                break
            except TimeoutError:
                clients.send(number)
        if clients.running:
            await asyncio.wait(clients.running)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the clients as the arguments say; the key is in PENSTOCK_TEST_API_KEY."""
    parser = argparse.ArgumentParser(prog="python -m tests.long.parts.load", description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True, type=Path, help="gets a line for each request")
    parser.add_argument("--certificate", required=True, help="that the API's is verified by")
    asyncio.run(send_until_told(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
