"""Connections that keep a gateway waiting, for as long as they are let.

`python -m tests.benchmarks.slow --port N --count 10000 --api-key KEY`: half of them asked once and
keep their connection, a fourth send a head, a fourth a body, a byte every two seconds. Whichever is
closed comes again a moment later. It says how many are connected, a line a second. They come from
many addresses of the loopback, as no single one may have them all.
"""

import asyncio
import sys
import time
from collections import Counter
from random import Random
from typing import Annotated

import typer
import uvloop

from tests.benchmarks.machine import allow_many_files

ADDRESSES = 50
BYTE_SECONDS = 2.0
PAUSE_SECONDS = 1.0
OPEN_AT_ONCE = 64
ASK = "GET /v1/models HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n\r\n"
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nx-slow: "
BODY = (
    "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n"
    "content-type: application/json\r\ncontent-length: 4000\r\n\r\n{{"
)
KINDS = ("idle", "idle", "head", "body")


class Crowd:
    """All of them."""

    def __init__(self, port: int, api_key: str) -> None:
        self.connected = 0
        self.came: Counter[str] = Counter()
        self._port = port
        self._api_key = api_key
        self._opening = asyncio.Semaphore(OPEN_AT_ONCE)
        self._chance = Random(1)

    async def be_slow(self, number: int) -> None:
        """Be connected for ever."""
        kind, address = KINDS[number % len(KINDS)], f"127.0.1.{number % ADDRESSES + 1}"
        while True:
            try:
                async with self._opening:
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1", self._port, local_addr=(address, 0)
                    )
            except OSError:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            self.connected += 1
            self.came[kind] += 1
            try:
                await self._dawdle(kind, reader, writer)
            except OSError:
                pass
            finally:
                self.connected -= 1
                writer.close()
            await asyncio.sleep(PAUSE_SECONDS * self._chance.uniform(0.5, 1.5))

    async def _dawdle(
        self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Send as little as there is to send, until the other side closes."""
        first = {"idle": ASK, "head": HEAD, "body": BODY}[kind].format(key=self._api_key)
        writer.write(first.encode())
        closed = asyncio.ensure_future(_until_closed(reader))
        try:
            await asyncio.sleep(self._chance.uniform(0, BYTE_SECONDS))
            while not closed.done():
                if kind != "idle":
                    writer.write(b" ")
                await asyncio.wait((closed,), timeout=BYTE_SECONDS)
        finally:
            closed.cancel()


async def _until_closed(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(4_096):
            pass
    except OSError:
        return


async def _run(port: int, count: int, api_key: str) -> None:
    crowd = Crowd(port, api_key)
    tasks = [asyncio.create_task(crowd.be_slow(number)) for number in range(count)]
    began = time.monotonic()
    while not any(task.done() for task in tasks):
        await asyncio.sleep(1.0)
        again = sum(crowd.came.values()) - count
        told = f"{time.monotonic() - began:.0f} s: {crowd.connected} connected, {again} came again"
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()
    await asyncio.gather(*tasks)


def main(
    port: Annotated[int, typer.Option(help="Of a gateway, on the loopback.")],
    count: Annotated[int, typer.Option(help="Of connections.")],
    api_key: Annotated[str, typer.Option(help="That a gateway takes.")],
) -> None:
    """Keep connections until killed."""
    allow_many_files()
    uvloop.run(_run(port, count, api_key))


if __name__ == "__main__":
    typer.run(main)
