"""Golden traces of the HTTP edge: each row of traces.toml over a connection to a real gateway.

A `[[trace]]` is one step, or a list of `[[trace.step]]`s on one connection. A step has

- `send`: bytes. `{name}` is a text of `[text]`, `{name#}` its length, `{name#x}` the length in
  hexadecimal, `{text*count}` a repetition, `{key}` an API key.
- `pieces`: the size of the pieces in which the bytes leave; `fin`: whether the client then ends its
  side; `method`: the method, where the answer's body depends on it.
- `status`: the answer's, 100 included; without it none comes. `headers`: patterns of whole values;
  `absent`: headers that are missing; `body`: a pattern found in the body; `together`: whether the
  head arrives with the first bytes of the body.
- `gateway`: `draining`, or `stopping`, where the listener has ended too.
- `then`: `kept` if the connection takes another request, `closed` if it ends and nothing more
  comes, `dropped` if it may also be reset.

A row may shorten `deadlines`, freeze the `engine`, bound the number of `connections`, and say that
the connection is `gone` on the gateway's side though the client keeps its own open.

`[[elsewhere]]` names the behaviours that take more than bytes, and the test of each.
"""

import asyncio
import re
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from serving.gateway.http import connection, request, write_buffer
from tests.fixtures.gateway import Stack, running_stack
from tests.fixtures.memory_folder import memory_folder
from tests.fixtures.named_tests import missing_tests
from tests.fixtures.neighbour import neighbour
from tests.fixtures.raw_http import RawClient
from tests.fixtures.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("traces"),
]

TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("traces.toml").read_text())
NEXT = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
LONG_SECONDS = 3_600.0
"""A wait that ends in no test."""
SECONDS_MAX = 60.0
"""The time that a test gives to an answer, which takes milliseconds."""
NAMED = re.compile(r"\{([a-z0-9_]+)(#x?)?\}")
REPEATED = re.compile(r"\{([^{}]+)\*(\d+)\}")

Place = tuple[object, str]
WAITS: dict[str, Callable[[Stack], Place]] = {
    "first_request": lambda _: (connection, "KEEPALIVE_SECONDS"),
    "head": lambda _: (connection, "HEAD_SECONDS"),
    "first_body_byte": lambda stack: (stack.gateway.app.inference, "body_begins_seconds"),
    "body": lambda _: (request, "BODY_SECONDS_MAX"),
    "refused": lambda _: (connection, "PART_SECONDS"),
    "newcomer": lambda _: (connection, "UNASKED_SECONDS"),
    "tail": lambda _: (connection, "TAIL_SECONDS"),
    "stall": lambda _: (write_buffer, "STALL_SECONDS"),
}
"""The place of each of `[deadlines]` in today's code."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    with memory_folder(tmp_path_factory.mktemp("traces")) as folder:
        async with running_stack(folder) as running:
            yield running


def wire(template: str, texts: Mapping[str, str]) -> bytes:
    """Return the bytes that a template stands for."""

    def text_of(found: re.Match[str]) -> str:
        name, size = found.groups()
        text = NAMED.sub(text_of, texts[name])
        return {None: text, "#": f"{len(text)}", "#x": f"{len(text):x}"}[size]

    text = NAMED.sub(text_of, template)
    return REPEATED.sub(lambda found: found[1] * int(found[2]), text).encode("latin-1")


@dataclass(frozen=True)
class Reply:
    """One answer; `is_together` says whether its head came with the first bytes of its body."""

    status: int
    headers: dict[str, str]
    body: str
    is_together: bool


class Connection:
    """One client's connection, on which answers are read one by one."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._received = bytearray()

    async def send(self, data: bytes, pieces: int = 0) -> None:
        """Send bytes, in pieces of a size, each of which the gateway may read by itself."""
        for start in range(0, len(data), pieces or len(data) or 1):
            await self._client.send(data[start : start + pieces] if pieces else data)
            await asyncio.sleep(0)

    async def reply(self, method: str = "") -> Reply:
        """Read one answer to its end."""
        before = len(self._received)
        head = await self._until(b"\r\n\r\n")
        is_together = not before and bool(self._received)
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
        status = int(first.split(" ")[1])
        bodiless = method == "HEAD" or status < 200
        body = b"" if bodiless else await self._body(headers)
        return Reply(status, headers, body.decode(), is_together)

    async def rest(self) -> bytes:
        """Return what comes until the connection ends. Raises ConnectionError if it is reset."""
        while await self._read():
            pass
        return bytes(self._received)

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await self._until(b"\r\n"), 16):
                body += await self._exactly(size)
                assert await self._exactly(2) == b"\r\n"
            assert await self._exactly(2) == b"\r\n"
            return body
        if "content-length" in headers:
            return await self._exactly(int(headers["content-length"]))
        body = await self.rest()
        self._received.clear()
        return body

    async def _until(self, end: bytes) -> bytes:
        while end not in self._received:
            assert await self._read(), f"closed after {bytes(self._received)!r}"
        found, _, rest = bytes(self._received).partition(end)
        self._received[:] = rest
        return found

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            assert await self._read(), f"closed after {bytes(self._received)!r}"
        found = bytes(self._received[:size])
        del self._received[:size]
        return found

    async def _read(self) -> bytes:
        data = await self._client.read(seconds=SECONDS_MAX)
        self._received += data
        return data


def stop(stack: Stack, how: str) -> None:
    """Have the gateway drain, and its listener end if it is `stopping`."""
    stack.gateway.drain()
    if how == "stopping":
        for connection in list(stack._server.connections):
            connection.shutdown()


async def take(stack: Stack, client: RawClient, connection: Connection, step: Any) -> None:
    """Send the bytes of one step and compare what comes back."""
    texts = TABLE["text"] | {"key": stack.tenant.secret}
    if (how := step.get("gateway")) is not None:
        await eventually(lambda: stack._server.connections)
        stop(stack, how)
    await connection.send(wire(step.get("send", ""), texts), step.get("pieces", 0))
    if step.get("fin"):
        client.socket.shutdown(1)
    if "status" in step:
        compare(await connection.reply(step.get("method", "")), step, texts)
    if (then := step.get("then")) == "kept":
        await connection.send(NEXT)
        assert (await connection.reply()).status == 200
    elif then == "closed":
        assert await connection.rest() == b""
    elif then == "dropped":
        with suppress(ConnectionError):
            assert await connection.rest() == b""


def compare(reply: Reply, step: Any, texts: Mapping[str, str]) -> None:
    """Compare an answer with what a step says of it."""
    assert reply.status == step["status"], reply
    for name, pattern in step.get("headers", {}).items():
        assert re.fullmatch(pattern.replace("{date}", texts["date"]), reply.headers[name]), reply
    assert not set(step.get("absent", ())) & set(reply.headers), reply
    assert re.search(step.get("body", ""), reply.body, re.DOTALL), reply
    assert reply.is_together or not step.get("together"), reply


@contextmanager
def arranged(stack: Stack, row: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the gateway into the state that a row begins with, and back."""
    with monkeypatch.context() as patch:
        for name, place in WAITS.items():
            patch.setattr(*place(stack), row.get("deadlines", {}).get(name, LONG_SECONDS))
        if "connections" in row:
            patch.setattr(stack.gateway.connections, "most", row["connections"])
        engine = stack.engines[0].engine
        engine.freeze(row.get("engine") == "frozen")
        try:
            yield
        finally:
            engine.freeze(False)
            stack.gateway.is_draining = stack.gateway.connections.is_retiring = False


async def is_over(stack: Stack) -> None:
    """Wait until the gateway has no request and no connection left."""
    connections, app = stack._server.connections, stack.gateway.app
    await eventually(lambda: not connections and not app.in_flight, every_seconds=0.001)


@pytest.mark.parametrize("row", TABLE["trace"], ids=lambda row: row["name"])
async def test_trace(stack: Stack, row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await is_over(stack)
    with arranged(stack, row, monkeypatch):
        async with RawClient(stack.url) as client:
            connection = Connection(client)
            for step in row.get("step", [row]):
                await take(stack, client, connection, step)
            if row.get("gone"):
                await eventually(lambda: not stack._server.connections)
    await is_over(stack)


async def refused(stack: Stack, template: str, framing: Any) -> str:
    """Send a request with a framing; return what came instead of one refusal, or nothing."""
    texts = TABLE["text"] | {"key": stack.tenant.secret} | framing
    async with RawClient(stack.url) as client:
        await client.send(wire(template, texts))
        told = await client.read_all(SECONDS_MAX)
    statuses = [int(part[:3]) for part in told.split(b"HTTP/1.1 ")[1:]]
    wanted = [framing.get("status", 400)]
    return "" if statuses == wanted else f"{framing['name']}: {statuses}, wanted {wanted}"


@pytest.mark.parametrize("request_", TABLE["framed_request"], ids=lambda row: row["name"])
async def test_framing_is_refused_once_while_a_neighbour_is_served(
    stack: Stack, request_: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await is_over(stack)
    engine = stack.engines[0].engine
    prompts = engine.counts["prompt_tokens"]
    with arranged(stack, {}, monkeypatch):
        async with neighbour(stack.url, stack.tenant.secret) as served:
            told = partial(refused, stack, request_["send"])
            assert [odd for odd in await asyncio.gather(*map(told, TABLE["framing"])) if odd] == []
            count = len(served)
            await eventually(lambda: len(served) > count)
    await is_over(stack)
    assert engine.counts["prompt_tokens"] == prompts


async def test_the_deadlines_are_those_of_the_table(stack: Stack) -> None:
    places = {name: place(stack) for name, place in WAITS.items()}
    assert {name: getattr(*place) for name, place in places.items()} == TABLE["deadlines"]


async def test_every_test_that_a_row_names_exists() -> None:
    assert missing_tests(row["test"] for row in TABLE["elsewhere"]) == []
