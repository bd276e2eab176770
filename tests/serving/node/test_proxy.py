"""Only listed requests reach the engine, as one reader of HTTP and another see them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.node import RouteGrant
from serving.node.proxy import EngineProxy, ProxiedConnection
from tests.fixtures.waiting import eventually

TOKEN = "gateway-token-of-a-test"
FLEET_TOKEN = "fleet-token-of-a-test-"
CHAT = ("POST", "/v1/chat/completions")
METRICS = ("GET", "/metrics")
GRANTS = (RouteGrant(TOKEN, (CHAT,)), RouteGrant(FLEET_TOKEN, (CHAT, METRICS)))
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
BODY = b'{"a": 1}'
AUTH = f"authorization: Bearer {TOKEN}\r\n"


class Engine(asyncio.Protocol):
    """Keeps what it was sent, and answers each request as soon as h11 has read it whole."""

    def __init__(self, told: "Told") -> None:
        self.told = told
        self.reader = h11.Connection(h11.SERVER)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.told.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self.told.received += data
        self.reader.receive_data(data)
        while isinstance(event := self.reader.next_event(), h11.Request | h11.Data):
            if isinstance(event, h11.Request):
                self.told.requests.append(event)
            else:
                self.told.bodies += bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            self.transport.write(self.told.answer)
            self.reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            self.reader.send(h11.EndOfMessage())
            self.reader.start_next_cycle()

    def connection_lost(self, _: Exception | None) -> None:
        self.told.lost += 1


class Told:
    """What the engine heard."""

    def __init__(self, answer: bytes = ANSWER) -> None:
        self.answer = answer
        self.connections: list[Engine] = []
        self.requests: list[h11.Request] = []
        self.received = self.bodies = b""
        self.lost = 0


class Node:
    """A proxy on a port of its own, and all that passes it."""

    def __init__(self, proxy: EngineProxy, port: int, told: Told) -> None:
        self.proxy, self.port, self.told = proxy, port, told
        self.accepted: list[ProxiedConnection] = []

    async def ask(self, request: bytes) -> bytes:
        """Send bytes, and return all that comes until the node closes or has answered."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        said = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                while not said.endswith(ANSWER) and (data := await reader.read(65_536)):
                    said += data
        writer.close()
        return said


@asynccontextmanager
async def running(
    told: Told | None = None, connections_max: int = 100, grants: tuple[RouteGrant, ...] = GRANTS
) -> AsyncIterator[Node]:
    told = told or Told()
    loop = asyncio.get_running_loop()
    engine = await loop.create_server(lambda: Engine(told), "127.0.0.1", 0)
    proxy = EngineProxy(engine.sockets[0].getsockname()[1], grants, connections_max=connections_max)

    def accept() -> ProxiedConnection:
        node.accepted.append(ProxiedConnection(proxy))
        return node.accepted[-1]

    server = await loop.create_server(accept, "127.0.0.1", 0)
    node = Node(proxy, server.sockets[0].getsockname()[1], told)
    try:
        yield node
    finally:
        server.close()
        engine.close()
        for connection in list(proxy.connections):
            connection.abort()
        await asyncio.sleep(0)


def request(
    target: str = "/v1/chat/completions",
    *,
    method: str = "POST",
    version: str = "1.1",
    headers: str = AUTH,
    length: str | None = f"content-length: {len(BODY)}\r\n",
    body: bytes = BODY,
) -> bytes:
    head = f"{method} {target} HTTP/{version}\r\nhost: n\r\n{headers}{length or ''}\r\n"
    return head.encode("latin-1") + body


def status(answer: bytes) -> int:
    return int(answer[9:12])


async def test_a_listed_request_is_written_anew_and_its_answer_passes_as_it_is() -> None:
    headers = AUTH + "content-type: application/json\r\nX-Request-ID: r1\r\nx-priority: 9\r\n"
    async with running() as node:
        assert await node.ask(request(headers=headers)) == ANSWER
        host = f"host: 127.0.0.1:{node.proxy.engine_port}\r\n"
        assert node.told.received.decode() == (
            f"POST /v1/chat/completions HTTP/1.1\r\n{host}content-type: application/json\r\n"
            f"x-request-id: r1\r\ncontent-length: 8\r\n\r\n{BODY.decode()}"
        )
        fleet = f"authorization: Bearer {FLEET_TOKEN}\r\n"
        get = request("/metrics", method="GET", headers=fleet, length=None, body=b"")
        assert await node.ask(get) == ANSWER
        assert node.told.requests[-1].target == b"/metrics"


REFUSED = {
    "no token": (request(headers=""), 401),
    "another token": (request(headers="authorization: Bearer gateway-token-of-a-tesT\r\n"), 401),
    "no scheme": (request(headers=f"authorization: {TOKEN}\r\n"), 401),
    "two tokens": (request(headers=AUTH + AUTH), 401),
    "an unlisted route": (request("/invocations"), 404),
    "another method": (request(method="PUT"), 404),
    "a route of the fleet": (request("/metrics", method="GET", length=None, body=b""), 403),
    "a query": (request("/v1/chat/completions?a=1"), 404),
    "an encoded path": (request("/v1/chat%2Fcompletions"), 404),
    "an encoded letter": (request("/v1/%63hat/completions"), 404),
    "two slashes": (request("//v1/chat/completions"), 404),
    "a parameter": (request("/v1/chat/completions;a"), 404),
    "a way back": (request("/v1/chat/../chat/completions"), 404),
    "the absolute form": (request("http://n/v1/chat/completions"), 404),
    "capitals": (request("/V1/chat/completions"), 404),
    "CONNECT": (request("n:80", method="CONNECT", length=None, body=b""), 404),
    "no length": (request(length=None, body=b""), 411),
    "chunks": (request(length="transfer-encoding: chunked\r\n", body=b"0\r\n\r\n"), 411),
    "chunks and a length": (request(headers=AUTH + "transfer-encoding: chunked\r\n"), 4),
    "a length and chunks": (
        request(length="content-length: 8\r\ntransfer-encoding: chunked\r\n"),
        4,
    ),
    "odd chunks": (request(length="transfer-encoding: xchunked\r\n"), 4),
    "chunks by capitals": (request(length="Transfer-Encoding: CHUNKED\r\n"), 4),
    "chunks by a tab": (request(length="transfer-encoding:\tchunked\r\n"), 4),
    "chunks in a name with a blank": (request(length="transfer-encoding : chunked\r\n"), 4),
    "chunks in a folded line": (request(length="x: y\r\n transfer-encoding: chunked\r\n"), 4),
    "two lengths": (request(length="content-length: 8\r\ncontent-length: 8\r\n"), 400),
    "two lengths in one": (request(length="content-length: 8, 8\r\n"), 400),
    "a signed length": (request(length="content-length: +8\r\n"), 400),
    "a negative length": (request(length="content-length: -8\r\n"), 400),
    "a length by hexadecimal digits": (request(length="content-length: 0x8\r\n"), 400),
    "a length without end": (request(length="content-length: 99999999999999\r\n"), 400),
    "a bare line feed": (request(headers="authorization: Bearer x\n"), 4),
    "a NUL": (request(headers=AUTH + "x: a\0b\r\n"), 400),
    "a body of GET": (
        request("/metrics", method="GET", headers=f"authorization: Bearer {FLEET_TOKEN}\r\n"),
        400,
    ),
    "an upgrade": (request(headers=AUTH + "connection: upgrade\r\nupgrade: h2c\r\n"), 400),
    "an upgrade alone": (request(headers=AUTH + "upgrade: websocket\r\n"), 400),
    "an expectation": (request(headers=AUTH + "expect: 100-continue\r\n"), 417),
    "an old version": (request(version="1.0"), 505),
    "no HTTP": (b"hello\r\n\r\n", 400),
    "another protocol": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a head without end": (request(headers=f"x: {'a' * 70_000}\r\n"), 431),
    "many headers": (request(headers="x: aaaaaaaaaaaaaaaa\r\n" * 2_000), 431),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_not_listed_never_reaches_the_engine(case: str) -> None:
    asked, expected = REFUSED[case]
    async with running() as node:
        answer = await node.ask(asked)
        assert status(answer) == expected or status(answer) // 100 == expected
        assert answer.count(b"HTTP/1.1") == 1
        assert node.told.received == b""
        await eventually(lambda: not node.proxy.connections)


async def test_a_request_before_the_last_answer_ends_the_connection() -> None:
    async with running() as node:
        node.told.answer = b""  # an engine that takes its time
        assert await node.ask(request() + request()) == b""
        await eventually(lambda: node.told.lost == len(node.told.connections))


async def test_at_every_cut_the_engine_hears_the_same() -> None:
    whole = request(headers=AUTH + "content-type: application/json\r\n")
    async with running() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        await eventually(lambda: len(node.accepted) == 1)
        [connection] = node.accepted
        heard: set[bytes] = set()
        for cut in range(len(whole)):
            node.told.received = b""
            connection.data_received(whole[:cut])
            await asyncio.sleep(0)
            connection.data_received(whole[cut:])
            assert await reader.readexactly(len(ANSWER)) == ANSWER
            heard.add(node.told.received)
        assert len(heard) == 1
        assert len(node.told.connections) == 1, "one connection is kept for all"
        writer.close()


FRAGMENTS = (
    *(b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b":", b"0", b"/", b"//", b"?", b"%2f", b";"),
    *(b"content-length: 0\r\n", b"content-length: 99\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"transfer-encoding: identity, chunked\r\n", b"connection: close\r\n", b"upgrade: a\r\n"),
    *(b"POST /pause HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1", b"http://n"),
    request(),
)


@settings(max_examples=300, deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(FRAGMENTS)), max_size=4
    ),
    cut=st.floats(0, 1),
)
def test_whatever_is_sent_the_engine_hears_listed_requests_alone(
    edits: list[tuple[float, int, bytes]], cut: float
) -> None:
    data = request() + request()
    for place, removed, fragment in edits:
        at = int(place * len(data))
        data = data[:at] + fragment + data[at + removed :]
    asyncio.run(_is_harmless(data, int(cut * len(data))))


async def _is_harmless(data: bytes, cut: int) -> None:
    async with running() as node:
        _, writer = await asyncio.open_connection("127.0.0.1", node.port)
        await eventually(lambda: len(node.accepted) == 1, every_seconds=0.001)
        [connection] = node.accepted
        for piece in (data[:cut], data[cut:]):
            connection.data_received(piece)
            for _ in range(20):  # for the engine to be connected and to answer
                await asyncio.sleep(0)
        for heard in node.told.requests:
            assert (heard.method, heard.target) == (b"POST", b"/v1/chat/completions")
        writer.close()


async def test_a_client_that_reads_nothing_stops_the_engine_and_no_other_client() -> None:
    size = 16 * 1024 * 1024
    long = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size)
    async with running(Told(long)) as node:
        _, slow = await asyncio.open_connection("127.0.0.1", node.port, limit=1_024)
        slow.transport.pause_reading()
        slow.write(request())
        await eventually(lambda: len(node.told.connections) == 1)
        sending = node.told.connections[0].transport
        await eventually(lambda: _stands_still(sending.get_write_buffer_size))
        assert sending.get_write_buffer_size() > size // 4, "the engine waits for its reader"
        node.told.answer = ANSWER
        assert await node.ask(request()) == ANSWER
        slow.close()
        await eventually(lambda: node.told.lost == 2)


async def _stands_still(read: Callable[[], int]) -> bool:
    before = read()
    await asyncio.sleep(0.1)
    return 0 < before == read()


async def test_an_engine_that_reads_nothing_stops_its_own_client_alone() -> None:
    async with running() as node:
        size = 48 * 1024 * 1024
        _, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(request(length=f"content-length: {size}\r\n", body=b""))
        await eventually(lambda: len(node.told.connections) == 1)
        node.told.connections[0].transport.pause_reading()
        writer.write(bytes(size))
        await eventually(lambda: _stands_still(writer.transport.get_write_buffer_size))
        # The kernel keeps up to 20 MiB of two connections, and the node next to nothing.
        assert writer.transport.get_write_buffer_size() > size // 4
        assert await node.ask(request()) == ANSWER
        node.told.connections[0].transport.resume_reading()
        await eventually(lambda: len(node.told.bodies) == size + len(BODY))
        writer.close()


async def test_connections_are_bounded_and_none_more_is_no_sign_of_a_dead_engine() -> None:
    async with running(connections_max=1) as node:
        reader, first = await asyncio.open_connection("127.0.0.1", node.port)
        first.write(request())
        assert await reader.readexactly(len(ANSWER)) == ANSWER
        assert status(await node.ask(b"")) == HTTPStatus.TOO_MANY_REQUESTS
        first.write(request())
        assert await reader.readexactly(len(ANSWER)) == ANSWER
        first.close()
        await eventually(lambda: not node.proxy.connections)
        assert await node.ask(request()) == ANSWER


async def test_the_oldest_that_showed_no_token_makes_way_for_the_next() -> None:
    async with running(connections_max=3) as node:
        reader, known = await asyncio.open_connection("127.0.0.1", node.port)
        known.write(request())
        assert await reader.readexactly(len(ANSWER)) == ANSWER
        strangers = []
        for count in range(1, 9):
            strangers.append(await asyncio.open_connection("127.0.0.1", node.port))
            await eventually(lambda count=count: len(node.accepted) == 1 + count)
        for oldest, _ in strangers[:-2]:
            with contextlib.suppress(ConnectionResetError):
                assert await oldest.read() == b""
        assert len(node.proxy.connections) == 3
        assert not any(one.is_closed for one in (node.accepted[0], *node.accepted[-2:]))
        assert await node.ask(request()) == ANSWER
        known.write(request())
        assert await reader.readexactly(len(ANSWER)) == ANSWER
        for writer in (known, *(writer for _, writer in strangers)):
            writer.close()
        await eventually(lambda: not node.proxy.connections)
        assert not node.proxy.strangers


async def test_an_engine_that_is_away_is_no_answer() -> None:
    async with running() as node:
        node.proxy.engine_port = 1
        assert await node.ask(request()) == b""


@pytest.mark.parametrize("answer", [b"hello", ANSWER + ANSWER, b"HTTP/1.1 101 Switch\r\n\r\n"])
async def test_an_engine_that_speaks_no_plain_http_is_cut_off(answer: bytes) -> None:
    async with running(Told(answer)) as node:
        assert await node.ask(request()) == b""
        await eventually(lambda: node.told.lost == 1)
