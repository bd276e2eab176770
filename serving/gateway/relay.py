"""Relays: an engine's bytes to the client, noting tokens and times on the way."""

import asyncio
import time

import aiohttp

from serving.contract.records import Timeouts
from serving.gateway.conversation import Conversation
from serving.gateway.errors import Headers
from serving.gateway.heading import Heading
from serving.gateway.interrupts import Interrupts
from serving.gateway.job import Job
from serving.gateway.metrics import Metrics
from serving.gateway.reply import ABORTED, rebuild, usage_event
from serving.gateway.sse import (
    DONE,
    BrokenStream,
    Splitter,
    choice_index,
    cut_usage,
    read_usage,
)
from serving.usage.meter import Tokens

ANSWER_BYTES_MAX = 64 * 1024 * 1024
STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
SEND_SECONDS = 60.0
"""A client that takes nothing for this long has left, as far as we are concerned."""


class WholeRelay:
    """An answer in one piece; `tail` is what remains to be sent once usage is durable."""

    def __init__(self, job: Job, conversation: Conversation) -> None:
        self.tokens = Tokens()
        self.first_token_at: float | None = None
        self.tail = b""
        self._job = job
        self._conversation = conversation

    async def run(self, content: aiohttp.StreamReader) -> None:
        """Read the answer. Raises BrokenStream, or what aiohttp raises."""
        parts, size = [], 0
        async for part in content.iter_any():
            parts.append(part)
            size += len(part)
            if size > ANSWER_BYTES_MAX:
                raise BrokenStream("the answer is larger than 64 MB")
        answer = b"".join(parts)
        self.tail, self.tokens = rebuild(answer, self._job, self._conversation.request_id)


class StreamRelay:
    """A stream, event by event; everything but the last event is sent as it comes."""

    def __init__(
        self,
        job: Job,
        conversation: Conversation,
        interrupts: Interrupts,
        timeouts: Timeouts,
        metrics: Metrics,
    ) -> None:
        self.first_token_at: float | None = None
        self._job = job
        self._conversation = conversation
        self._interrupts = interrupts
        self._gap_seconds = timeouts.gap_seconds
        self._observe_gap = metrics.variant(job.model.variant_id).observe_gap
        self._usages: dict[int, bytes] = {}
        self._final: Tokens | None = None
        self._heading = Heading(job.endpoint.id_prefix + conversation.request_id, job.model_name)
        self._last_at = 0.0
        self._is_done = False

    @property
    def tokens(self) -> Tokens:
        """What the engine has said so far; at the end, what it took in all."""
        if self._final is not None:
            return self._final
        seen = [Tokens.of(read_usage(usage)) for usage in self._usages.values()]
        if not seen:
            return Tokens()
        per_prompt = self._job.choices // self._job.prompts
        prompts = {
            index // per_prompt: one.input for index, one in zip(self._usages, seen, strict=True)
        }
        return Tokens(
            input=sum(prompts.values()),
            output=sum(one.output for one in seen),
            reasoning=sum(one.reasoning for one in seen),
        )

    @property
    def tail(self) -> bytes:
        """The events that follow once usage is durable."""
        if not self._job.wants_usage:
            return DONE + b"\n\n"
        request_id = self._conversation.request_id
        return (
            usage_event(self._heading.created, self._job, request_id, self.tokens) + DONE + b"\n\n"
        )

    async def run(self, content: aiohttp.StreamReader) -> None:
        """Relay until `[DONE]`. Raises BrokenStream, or what aiohttp raises."""
        splitter = Splitter()
        try:
            while data := await content.readany():
                ready = self._take(splitter.feed(data))
                if ready:
                    await self._forward(ready)
                self._interrupts.expect("gap", self._gap_seconds)
        except asyncio.CancelledError:
            self._take(splitter.feed(content.read_nowait()))
            raise
        if not self._is_done:
            raise BrokenStream("the stream ended early")

    async def _forward(self, events: list[bytes]) -> None:
        now = time.perf_counter()
        if self.first_token_at is None:
            self.first_token_at = now
            await self._conversation.begin(200, STREAM_HEADERS)
        else:
            self._observe_gap(now - self._last_at)
        self._last_at = now
        self._interrupts.expect("client_stalled", SEND_SECONDS)
        await self._conversation.send(b"\n\n".join(events) + b"\n\n")

    def _take(self, events: list[bytes]) -> list[bytes]:
        ready = []
        for event in events:
            if event.startswith(DONE):
                self._is_done = True
            elif event.startswith(b'data: {"error"') or ABORTED in event:
                # A dying vLLM says [DONE] after this: an ending that is no ending.
                raise BrokenStream("the engine reported an error")
            elif event.startswith(b"data:"):
                shown = self._strip(event)
                if shown is not None:
                    ready.append(shown)
        return ready

    def _strip(self, event: bytes) -> bytes | None:
        """Take the usage out and put the client's name for the model in."""
        event, usage = cut_usage(event)
        if b'"choices":[]' in event:
            if usage is not None:
                self._final = Tokens.of(read_usage(usage))
            return None
        if usage is not None:
            index = choice_index(event) if self._job.choices > 1 else 0
            self._usages[index] = usage
        return self._heading.rewrite(event)
