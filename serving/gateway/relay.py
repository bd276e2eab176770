"""Relays: an engine's bytes to the client, noting tokens and times on the way."""

import asyncio
import time
from typing import Protocol

import aiohttp

from serving.gateway.interrupts import Interrupts
from serving.gateway.reply import ABORTED
from serving.gateway.sse import DONE, BrokenStream, Splitter, reported_error
from serving.gateway.tally import Tally
from serving.usage.meter import Tokens


class Relay(Protocol):
    """One try at an answer; `tail` is what remains to be sent once its usage is durable."""

    first_token_at: float | None

    @property
    def tokens(self) -> Tokens: ...

    @property
    def tail(self) -> bytes: ...

    async def run(self, content: aiohttp.StreamReader) -> None:
        """Read the answer. Raises BrokenStream, EngineRefusal, or what aiohttp raises."""


class Outlet(Protocol):
    """Where a stream's events go: to the client as they come, or into one whole answer."""

    async def take(self, events: list[bytes]) -> None:
        """Take events without their usage. Raises BrokenStream when they make no sense."""

    def end(self, tokens: Tokens) -> bytes:
        """Return what follows the last event. Raises BrokenStream when something is missing."""


class StreamRelay:
    """Reads an engine's stream to its end, event by event."""

    def __init__(
        self, outlet: Outlet, tally: Tally, interrupts: Interrupts, *, gap_seconds: float
    ) -> None:
        self.first_token_at: float | None = None
        self.tail = b""
        self._outlet = outlet
        self._tally = tally
        self._interrupts = interrupts
        self._gap_seconds = gap_seconds
        self._is_done = False

    @property
    def tokens(self) -> Tokens:
        """What the engine has said so far; at the end, what it took in all."""
        return self._tally.tokens

    async def run(self, content: aiohttp.StreamReader) -> None:
        """Read until `[DONE]`. Raises BrokenStream, EngineRefusal, or what aiohttp raises."""
        splitter = Splitter()
        try:
            while data := await content.readany():
                if events := self._read(splitter.feed(data)):
                    self.first_token_at = self.first_token_at or time.perf_counter()
                    await self._outlet.take(events)
                self._interrupts.expect("gap", self._gap_seconds)
        except asyncio.CancelledError:
            # What had arrived was generated: it is metered though nobody will see it.
            self._read(splitter.feed(content.read_nowait()))
            raise
        if not self._is_done:
            raise BrokenStream("the stream ended early")
        self.tail = self._outlet.end(self.tokens)

    def _read(self, events: list[bytes]) -> list[bytes]:
        ready = []
        for event in events:
            if event.startswith(DONE):
                self._is_done = True
            elif event.startswith(b'data: {"error"'):
                raise reported_error(event)
            elif ABORTED in event:
                raise BrokenStream("the engine dropped the work")
            elif event.startswith(b"data:"):
                rest = self._tally.take(event)
                if rest is not None:
                    ready.append(rest)
        return ready
