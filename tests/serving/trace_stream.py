"""The code of `serving/` that one streamed chat request and one later token of a stream enter.

`python -m tests.serving.trace_stream` prints both as JSON. Gateway, client and a scripted engine
share one event loop. Whatever runs for a client's connection is marked by a context variable, which
callbacks and tasks inherit: background tasks and the engine are not counted. The journal's thread
has no context, so it is not counted either.

A process of its own runs this, since a profile function slows down all code of a process. Python
3.11 has no `sys.monitoring`; under 3.12 it would replace `sys.setprofile` here.
"""

import asyncio
import dis
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

import structlog

import serving
from serving.engine import http_client
from serving.gateway import cancel_scope
from serving.gateway.dialects.openai.envelope import error_reply
from serving.gateway.gateway import build
from serving.gateway.http.server import HttpServer
from serving.usage import journal_writer
from tests.fixtures import catalog
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.gateway import MESSAGES, Stack, config
from tests.fixtures.memory_folder import memory_folder
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

SERVING = str(Path(next(iter(serving.__path__)))) + "/"
REPEATS = 30
"""Times that each is traced. The fewest calls count: of those that happen once a second, and of the
journal's second batch on a busy machine, not every repeat has some."""
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LONG_SECONDS = 3_600.0
TIMERS = (
    (journal_writer, "BEHIND_SECONDS"),
    (cancel_scope, "LOOK_SECONDS"),
    (http_client, "IDLE_SECONDS"),
)
"""Waits that end within a request on a slow machine only, and then cause calls."""
is_for_client: ContextVar[bool] = ContextVar("is_for_client", default=False)


class Trace:
    """A profile function: calls of functions of `serving/`, by function, while it records."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.is_recording = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self.is_recording:
            return
        code = frame.f_code
        if code.co_filename.startswith(SERVING) and is_for_client.get() and not _resumes(frame):
            self.calls[code] += 1

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record anew."""
        self.calls.clear()
        self.is_recording = True
        try:
            yield
        finally:
            self.is_recording = False

    def summary(self) -> dict[str, Any]:
        """Return the number of files, functions and calls, and the files and functions."""
        files = sorted({code.co_filename.removeprefix(SERVING) for code in self.calls})
        names = {
            f"{code.co_filename.removeprefix(SERVING)}:{code.co_qualname}": count
            for code, count in self.calls.items()
        }
        return {
            "files": len(files),
            "functions": len(self.calls),
            "calls": self.calls.total(),
            "entered": files,
            "called": dict(sorted(names.items())),
        }


def _resumes(frame: FrameType) -> bool:
    """Tell whether a generator or coroutine goes on, which is reported as a call too."""
    return frame.f_lasti > _start(frame.f_code)


@cache
def _start(code: CodeType) -> int:
    """Return the offset at which a call of a function is reported: of its first RESUME."""
    instructions = dis.get_instructions(code)
    return next(each.offset for each in instructions if each.opname == "RESUME")


class Engine:
    """An engine that answers each chat with the chunks that are put into `chunks`."""

    def __init__(self) -> None:
        self.chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection; None ends an answer."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
                request_id = head.partition(b"x-request-id: ")[2].partition(b"\r")[0]
                await reader.readexactly(length)
                sent = HEAD
                while (chunk := await self.chunks.get()) is not None:
                    data = chunk.replace(b"REQUEST", request_id)
                    writer.write(sent + b"%x\r\n%b\r\n" % (len(data), data))
                    sent = b""
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def answer(self, *chunks: bytes) -> None:
        """Send chunks of an answer, each by itself."""
        for chunk in chunks:
            self.chunks.put_nowait(chunk)

    def end(self) -> None:
        """End the answer."""
        self.chunks.put_nowait(None)


def chunk(delta: str, finish: str = "null", tokens: int = 1) -> bytes:
    """Return one chunk of a chat as vLLM sends it."""
    return (
        'data: {"id":"chatcmpl-REQUEST","object":"chat.completion.chunk","created":1,'
        f'"model":"var_demo","choices":[{{"index":0,"delta":{delta},"logprobs":null,'
        f'"finish_reason":{finish},"token_ids":null}}],"usage":{{"prompt_tokens":9,'
        f'"total_tokens":{9 + tokens},"completion_tokens":{tokens}}}}}\n\n'
    ).encode()


ROLE = chunk('{"role":"assistant","content":""}', tokens=0)
USAGE = (
    b'data: {"id":"chatcmpl-REQUEST","object":"chat.completion.chunk","created":1,'
    b'"model":"var_demo","choices":[],"usage":{"prompt_tokens":9,"total_tokens":10,'
    b'"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}\n\ndata: [DONE]\n\n'
)
ONE_TOKEN = ROLE + chunk('{"content":"A"}', '"length"') + USAGE


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Stack, Engine]]:
    """Run a gateway before the scripted engine; only its connections to clients are marked."""
    control, tenant, engine = FakeControl(), catalog.tenant(), Engine()
    engines = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
    engine.url = f"http://127.0.0.1:{engines.sockets[0].getsockname()[1]}"
    async with engines, control.serving():
        catalog.publish(control, tenant)
        record = catalog.replica(engine.url)
        control.fleet.publish("replica", record.replica_id, record)
        stack = Stack(control, folder, tenant)
        stack.gateway = build(config(folder, control.url))
        await stack.gateway.load()
        stack.gateway.start()
        stack._server = HttpServer(stack.gateway.app, stack.gateway.connections, error_reply)
        mark = is_for_client.set(True)
        await stack._server.start("127.0.0.1", 0)
        is_for_client.reset(mark)
        stack.url = f"http://127.0.0.1:{stack._server.port}"
        await stack.ready()
        try:
            yield stack, engine
        finally:
            await stack.stop_gateway()


async def ask(stack: Stack, client: RawClient) -> None:
    """Ask for a stream."""
    body = {"model": "demo", "messages": MESSAGES, "max_tokens": 64, "stream": True}
    await client.send(request("/v1/chat/completions", stack.tenant.secret, body))


async def until(client: RawClient, end: bytes) -> None:
    """Read until an answer ends so."""
    told = b""
    while not told.endswith(end):
        data = await client.read()
        assert data, told
        told += data


async def one_request(stack: Stack, engine: Engine, client: RawClient) -> None:
    """Have one chat of one token answered, to its end and that of all work on it."""
    engine.answer(ONE_TOKEN)
    engine.end()
    await ask(stack, client)
    await until(client, b"0\r\n\r\n")
    await eventually(lambda: not stack.gateway.app.in_flight, every_seconds=0.001)


async def traced(folder: Path) -> dict[str, Any]:
    """Return the summaries of a request and of a token."""
    trace, found = Trace(), dict[str, Any]()
    requests, tokens = list[dict[str, Any]](), list[dict[str, Any]]()
    async with running(folder) as (stack, engine), RawClient(stack.url) as client:
        for _ in range(3):
            await one_request(stack, engine, client)
        sys.setprofile(trace)
        for _ in range(REPEATS):
            with trace.recording():
                await one_request(stack, engine, client)
            requests.append(trace.summary())
        await ask(stack, client)
        engine.answer(ROLE, chunk('{"content":"A"}'))
        await until(client, b'"A"},"logprobs":null,"finish_reason":null}]}\n\n\r\n')
        for number in range(2, 2 + REPEATS):
            with trace.recording():
                engine.answer(chunk('{"content":"B"}', tokens=number))
                await until(client, b"\n\n\r\n")
            tokens.append(trace.summary())
        sys.setprofile(None)
        engine.answer(chunk('{"content":"C"}', '"length"'), USAGE)
        engine.end()
        await until(client, b"0\r\n\r\n")
    found["request"] = min(requests, key=lambda one: one["calls"])
    found["token"] = min(tokens, key=lambda one: one["calls"])
    return found


def main() -> None:
    """Print both as JSON, and logs elsewhere."""
    for module, name in TIMERS:
        setattr(module, name, LONG_SECONDS)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with TemporaryDirectory() as other, memory_folder(Path(other)) as folder:
        json.dump(asyncio.run(traced(folder)), sys.stdout)


if __name__ == "__main__":
    main()
