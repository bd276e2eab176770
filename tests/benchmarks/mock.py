"""An engine that costs next to nothing: a raw asyncio protocol with vLLM's bytes made in advance.

`python -m tests.benchmarks.mock --port N [--itl-ms 20]` answers chat completions of exactly
`max_tokens` tokens, streamed or whole, and counts as vLLM does in `/metrics`. Without `--itl-ms` a
stream leaves in one write, as from an engine that never waits; with it each token leaves alone, and
is the nanosecond it left at.
"""

import asyncio
import re
import time
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from typing import Annotated, cast

import typer
import uvloop

MODEL = "bench"
PROMPT_TOKENS = 180
WORDS = ("gate", "water", "measured", "pipe", "valve", "turbine", "head", "spill")
_HEAD = (
    b'{"id":"chatcmpl-0f0f","object":"%b","created":1763700000,"model":"' + MODEL.encode() + b'"'
)
_CONTENT_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens": ?(\d+)')
_STREAM = re.compile(rb'"stream": ?true')
_INTERVAL = re.compile(rb'"stream_interval": ?(\d+)')
_INCLUDE_USAGE = re.compile(rb'"include_usage": ?true')
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
STREAM_END = b"0\r\n\r\n"
STAMP = "0" * 19
"""In place of a word, what a nanosecond is written over."""


def _reply(body: bytes, kind: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
    return head % (kind, len(body)) + body


def _usage(completion_tokens: int, extra: bytes = b"") -> bytes:
    counts = (PROMPT_TOKENS, PROMPT_TOKENS + completion_tokens, completion_tokens)
    return b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d' % counts + extra + b"}"


def _final_usage(tokens: int) -> bytes:
    return _usage(tokens, b',"prompt_tokens_details":{"cached_tokens":0}')


@cache
def whole(tokens: int) -> bytes:
    """Return the HTTP reply that is not streamed."""
    text = " ".join(islice(cycle(WORDS), tokens)).encode()
    message = b'{"role":"assistant","content":"' + text + b'","refusal":null}'
    choice = b'{"index":0,"message":' + message + b',"logprobs":null,"finish_reason":"length"}'
    usage = b',"usage":' + _final_usage(tokens)
    return _reply(_HEAD % b"chat.completion" + b',"choices":[' + choice + b"]" + usage + b"}")


@cache
def frames(
    tokens: int, with_usage: bool, interval: int = 1, words: tuple[str, ...] = WORDS
) -> list[bytes]:
    """Return a stream's HTTP chunks: the role, the first token, then one for each `interval`
    tokens, and all that ends it.
    """
    role, *made = _token_frames(tokens, with_usage, interval, words)
    end = b"data: [DONE]\n\n"
    if with_usage:
        head = b"data: " + _HEAD % b"chat.completion.chunk"
        end = head + b',"choices":[],"usage":' + _final_usage(tokens) + b"}\n\n" + end
    return [*map(_in_http_chunk, (role, *made)), _in_http_chunk(end) + STREAM_END]


def _token_frames(
    tokens: int, with_usage: bool, interval: int, of: tuple[str, ...]
) -> Iterator[bytes]:
    head = b"data: " + _HEAD % b"chat.completion.chunk" + b',"choices":[{"index":0,"delta":{'
    words, told = list(islice(cycle(of), tokens)), 0
    for count in (0, *range(1, tokens, interval), tokens):
        role = b"" if count else b'"role":"assistant",'
        reason = b'"length"' if count == tokens else b"null"
        text = " ".join(words[told:count]).encode()
        delta = b'%b"content":" %b"},"logprobs":null,"finish_reason":%b,"token_ids":null}]'
        usage = b',"usage":' + _usage(count) if with_usage else b""
        yield head + delta % (role, text, reason) + usage + b"}\n\n"
        told = count


def _in_http_chunk(frame: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(frame), frame)


def _stamped(frame: bytes) -> bytes:
    return frame.replace(STAMP.encode(), b"%019d" % time.monotonic_ns(), 1)


class Counters:
    """What was asked and made, over all connections."""

    def __init__(self) -> None:
        self.requests = 0
        self.tokens = 0

    def reply(self) -> bytes:
        """Return the counters under vLLM's name for tokens and one of our own."""
        lines = b"vllm:generation_tokens_total %d\nmock:requests_total %d\n"
        return _reply(lines % (self.tokens, self.requests), b"text/plain")


class EngineProtocol(asyncio.Protocol):
    """One keep-alive connection; bodies come with a content-length, one request at a time."""

    def __init__(self, counters: Counters, itl_seconds: float) -> None:
        self.counters = counters
        self.itl_seconds = itl_seconds
        self.buffer = b""
        self.transport: asyncio.Transport
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop a stream whose reader left."""
        if self.timer is not None:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer every whole request in the buffer."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n") + 4) > 3:
            length = _CONTENT_LENGTH.search(self.buffer, 0, end)
            size = end + (int(length[1]) if length else 0)
            if len(self.buffer) < size:
                return
            request, self.buffer = self.buffer[:size], self.buffer[size:]
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        if request.startswith(b"POST"):
            self._generate(request)
        elif request.startswith(b"GET /metrics"):
            self.transport.write(self.counters.reply())
        else:
            self.transport.write(_reply(b'{"object":"list","data":[{"id":"bench"}]}'))

    def _generate(self, request: bytes) -> None:
        self.counters.requests += 1
        asked = _MAX_TOKENS.search(request)
        tokens = int(asked[1]) if asked else 16
        if not _STREAM.search(request):
            self.counters.tokens += tokens
            self.transport.write(whole(tokens))
            return
        with_usage, interval = bool(_INCLUDE_USAGE.search(request)), _INTERVAL.search(request)
        if self.itl_seconds:
            made = frames(tokens, with_usage, words=(STAMP,))
            self.transport.write(STREAM_HEAD + made[0])
            self._pace(made, 1, asyncio.get_running_loop().time())
        else:
            made = frames(tokens, with_usage, int(interval[1]) if interval else 1)
            self.counters.tokens += tokens
            self.transport.write(STREAM_HEAD + b"".join(made))

    def _pace(self, made: list[bytes], index: int, began: float) -> None:
        """Write token number `index`, and all that ends the stream with the last."""
        self.counters.tokens += 1
        if index == len(made) - 2:
            self.timer = None
            self.transport.write(_stamped(made[-2]) + made[-1])
            return
        self.transport.write(_stamped(made[index]))
        due = began + index * self.itl_seconds
        self.timer = asyncio.get_running_loop().call_at(due, self._pace, made, index + 1, began)


async def serve(port: int, itl_seconds: float) -> None:
    """Serve for ever on loopback."""
    counters = Counters()
    server = await asyncio.get_running_loop().create_server(
        lambda: EngineProtocol(counters, itl_seconds), "127.0.0.1", port, backlog=4_096
    )
    await server.serve_forever()


def main(
    port: Annotated[int, typer.Option(help="Loopback port.")],
    itl_ms: Annotated[float, typer.Option(help="Milliseconds between tokens; 0: none.")] = 0.0,
) -> None:
    """Serve the mock engine until it is killed."""
    uvloop.run(serve(port, itl_ms / 1_000))


if __name__ == "__main__":
    typer.run(main)
