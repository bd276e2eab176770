"""Our own HTTP client: whatever a replica writes, nobody gets an answer that is not theirs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.engine import http_client
from serving.engine.errors import EngineError, InvalidEngineResponse, ReplicaUnreachable
from serving.engine.http_client import IDLE_SECONDS, ConnectionPool, ReplicaCall
from tests.fixtures.scripted_server import Script, ScriptedServer, scripted
from tests.fixtures.waiting import eventually

HEAD = b"HTTP/1.1 200 OK\r\n"
OK = HEAD + b"content-length: 2\r\n\r\nok"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep idle connections however long this machine stands still."""
    monkeypatch.setattr("serving.engine.http_client.IDLE_SECONDS", 60.0)


class Caller:
    """Calls one server over one set of connections."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.connections = ConnectionPool()

    def call(self, body: bytes = b"{}", **headers: str) -> ReplicaCall:
        url = f"http://127.0.0.1:{self.server.port}/v1/x"
        return ReplicaCall(self.connections, url, (body,), headers, connect_seconds=60.0)

    async def ask(self, body: bytes = b"{}") -> tuple[int, bytes]:
        async with asyncio.timeout(60), self.call(body) as answer:
            status, parts = await answer.status(), []
            while data := await answer.read():
                parts.append(data)
            return status, b"".join(parts)


@asynccontextmanager
async def calling(script: Script) -> AsyncIterator[Caller]:
    async with scripted(script) as server:
        caller = Caller(server)
        try:
            yield caller
        finally:
            caller.connections.close()


def always(*pieces: bytes | None) -> Script:
    return lambda number, turn: list(pieces)


@pytest.mark.parametrize("answer", [OK, CHUNKED])
async def test_a_clean_answer_keeps_the_connection(answer: bytes) -> None:
    async with calling(always(answer)) as caller:
        for _ in range(5):
            assert await caller.ask() == (200, b"ok")
        assert caller.server.connections == 1


async def test_the_request_is_what_was_given() -> None:
    async with calling(always(OK)) as caller:
        async with caller.call(b'{"a": 1}', **{"x-request-id": "r1"}):
            pass
        [(_, request)] = caller.server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert body == b'{"a": 1}'
    assert head.split(b"\r\n") == [
        b"POST /v1/x HTTP/1.1",
        b"host: 127.0.0.1:%d" % caller.server.port,
        b"content-type: application/json",
        b"x-request-id: r1",
        b"content-length: 8",
    ]


async def test_a_header_cannot_smuggle_a_line() -> None:
    async with calling(always(OK)) as caller:
        with pytest.raises(ValueError, match="line break"):
            caller.call(**{"x-request-id": "a\r\nx-evil: 1"})


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"\r\n",
        OK + OK,
        CHUNKED + b"\r\n",
        CHUNKED + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother",
        HEAD + b"connection: close\r\ncontent-length: 2\r\n\r\nok",
        HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-late: 1\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_whatever_is_left_over_ends_the_connection(answer: bytes) -> None:
    async with calling(always(answer)) as caller:
        assert await caller.ask() == (200, b"ok")
        assert await caller.ask() == (200, b"ok")
        assert caller.server.connections == 2


async def test_a_byte_while_idle_ends_the_connection() -> None:
    async with calling(lambda number, turn: [OK, b"late"] if number == 0 else [OK]) as caller:
        assert await caller.ask() == (200, b"ok")
        await eventually(lambda: caller.server.closed == 1)
        assert await caller.ask() == (200, b"ok")
        assert caller.server.connections == 2


async def test_what_is_said_ahead_of_an_answer_is_skipped() -> None:
    ahead = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    async with calling(always(ahead + OK)) as caller:
        assert await caller.ask() == (200, b"ok")
        assert await caller.ask() == (200, b"ok")
        assert caller.server.connections == 1


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with calling(always(HEAD + b"\r\n", b"so ", b"on", None)) as caller:
        assert await caller.ask() == (200, b"so on")
        assert await caller.ask() == (200, b"so on")
        assert caller.server.connections == 2


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([None], ReplicaUnreachable),
        ([b"HTTP/1.1 2"], ReplicaUnreachable),
        ([b"SSH-2.0-OpenSSH\r\n"], ReplicaUnreachable),
        ([b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"], EngineError),
        ([HEAD + b"x: " + b"a" * 70_000], ReplicaUnreachable),
        ([HEAD + b"x: y\r\n" * 15_000 + b"\r\n"], EngineError),
        ([HEAD + b"content-length: 9\r\n\r\nok", None], InvalidEngineResponse),
        ([HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n", None], InvalidEngineResponse),
        ([HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n"], InvalidEngineResponse),
        ([HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok"], EngineError),
        ([HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"], EngineError),
    ],
)
async def test_what_is_no_answer_is_an_error(
    pieces: list[bytes | None], error: type[EngineError]
) -> None:
    script = [*pieces, None] if pieces[-1] is not None else pieces
    async with calling(always(*script)) as caller:
        with pytest.raises(error):
            await caller.ask()


async def test_a_kept_connection_that_was_closed_is_tried_once_more() -> None:
    def script(number: int, turn: int) -> list[bytes | None]:
        return [None] if turn else [OK]

    async with calling(script) as caller:
        for _ in range(3):
            assert await caller.ask() == (200, b"ok")
        assert [number for number, _ in caller.server.requests] == [0, 0, 1, 1, 2]


async def test_after_one_byte_of_an_answer_nothing_is_sent_again() -> None:
    def script(number: int, turn: int) -> list[bytes | None]:
        return [b"H", None] if turn else [OK]

    async with calling(script) as caller:
        await caller.ask()
        with pytest.raises(ReplicaUnreachable):
            await caller.ask()
        assert len(caller.server.requests) == 2


async def test_leaving_early_closes_the_connection() -> None:
    async with calling(always(HEAD + b"content-length: 9\r\n\r\nok")) as caller:
        async with caller.call() as answer:
            assert await answer.read() == b"ok"
        await eventually(lambda: caller.server.closed == 1)


async def test_a_cancelled_wait_closes_the_connection() -> None:
    async with calling(always()) as caller:
        waiting = asyncio.create_task(caller.ask())
        await eventually(lambda: caller.server.requests)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await eventually(lambda: caller.server.closed == 1)


async def test_a_replica_that_floods_is_made_to_wait() -> None:
    size = 64 * 2**20
    body = b"a" * size
    answer = HEAD + b"content-length: %d\r\n\r\n" % size + body
    async with calling(always(answer)) as caller, caller.call() as reply:
        await asyncio.sleep(0.2)
        assert len(reply.read_nowait()) < 4 * http_client.BUFFER_BYTES_MAX
        total = 0
        while data := await reply.read():
            total += len(data)
        assert total > size - 4 * http_client.BUFFER_BYTES_MAX


async def test_stale_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.engine.http_client.IDLE_SECONDS", 0.05)
    assert IDLE_SECONDS < 5
    async with calling(always(OK)) as caller:
        await caller.ask()
        await eventually(lambda: caller.server.closed == 1)
        assert not caller.connections._idle


async def test_nobody_listens() -> None:
    async with calling(always(OK)) as caller:
        pass
    with pytest.raises(ReplicaUnreachable):
        await caller.ask()


TAILS = st.sampled_from([b"", b"", b"", b"\r\n", b"x", b"\0", OK, HEAD])
BODIES = st.binary(min_size=1, max_size=300)


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes, list[bytes]]:
    """A body, the bytes that carry it with what may follow them, and these cut in pieces."""
    body, is_chunked = draw(BODIES), draw(st.booleans())
    if is_chunked:
        size = draw(st.integers(1, 120))
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        wire = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"
    else:
        wire = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    wire += draw(TAILS)
    cuts = sorted(draw(st.sets(st.integers(1, len(wire) - 1), max_size=6)))
    pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    return body, wire, pieces


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(script=st.lists(answers(), min_size=2, max_size=6))
def test_each_request_gets_its_own_answer_or_an_error(
    script: list[tuple[bytes, bytes, list[bytes]]],
) -> None:
    """Answers cut anywhere, with bytes left over: in step, or not at all.

    What comes after the next request was sent is not ours to tell apart: ids do (`reading.py`).
    """

    async def run() -> None:
        asked = iter(script)
        async with calling(lambda number, turn: list(next(asked)[2])) as caller:
            for number, (body, _, _) in enumerate(script, start=1):
                assert await caller.ask() == (200, body)
                await eventually(lambda: caller.server.said == number)  # noqa: B023
                await asyncio.sleep(0.01)

    asyncio.run(run())
