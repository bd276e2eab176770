"""Whatever is sent to a gateway, its memory stays flat, the refusal comes at once, and others are
served meanwhile. The gateway is a process of its own, whose memory is looked at all the time."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

import psutil
import pytest
import pytest_asyncio

from tests.fixtures.environment import free_port
from tests.fixtures.gateway import MESSAGES
from tests.fixtures.gateway_processes import gateway, until_ready, world
from tests.fixtures.neighbour import neighbour
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("flat_memory")]

GROWTH_BYTES_MAX = 24 * 2**20
"""What 500 slow clients send is 10 MB."""
SECONDS_MAX = 10.0
"""For the fastest of some refusals, each of which takes some milliseconds."""
ENDLESS_BYTES = 200 * 2**20
SENT_BYTES_MAX = ENDLESS_BYTES // 4
"""Until the refusal is read: a body may have 8 MB, the kernel's buffers some more."""
PIECE_BYTES = 64 * 1024
SLOW_CONNECTIONS = 500
AT_ONCE = 8
ONE_BY_ONE = 1_000
ROUNDS = 3
WARM_SECONDS = 60
LOOK_SECONDS = 0.005

CHAT = "/v1/chat/completions"
ASK = {"model": "demo", "messages": MESSAGES, "max_tokens": 1}
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
CHUNKS = b"transfer-encoding: chunked\r\n"


@dataclass
class Door:
    """A gateway, how much memory it had when it was warm, and the most that was seen since."""

    url: str
    key: bytes
    process: psutil.Process
    served: list[float]
    warm_bytes: int = 0
    most_bytes: int = 0

    def begin(self) -> None:
        """Take the memory that it has now for what it has when it is warm."""
        self.warm_bytes = self.most_bytes = self.process.memory_info().rss

    def look(self) -> None:
        """See how much memory it has."""
        self.most_bytes = max(self.most_bytes, self.process.memory_info().rss)

    async def check(self, what: str) -> None:
        """Fail if its memory grew, or if a newcomer or a neighbour is not served. Once both were,
        all who came before are connected, and what they sent has been read."""
        assert await answered(self, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n") == 404
        count = len(self.served)
        await eventually(lambda: len(self.served) > count + 3)
        self.look()
        grown = self.most_bytes - self.warm_bytes
        assert grown < GROWTH_BYTES_MAX, f"{what}: {grown / 2**20:.1f} MB more"


@asynccontextmanager
async def watched(door: Door) -> AsyncIterator[None]:
    """Look at its memory all the time."""

    async def look() -> None:
        while True:
            door.look()
            await asyncio.sleep(LOOK_SECONDS)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched_door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    tmp_path, operator_port = tmp_path_factory.mktemp("flat"), free_port()
    more = {"PENSTOCK_MAX_CONNECTIONS_PER_ADDRESS": "2000"}
    async with (
        world() as (control, listening, secret),
        gateway(tmp_path / "one", control, listening, operator_port, more) as process,
    ):
        await until_ready(operator_port)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        found = psutil.Process(process.pid)
        async with neighbour(url, secret) as served:
            key = b"authorization: Bearer %b\r\n" % secret.encode()
            made = Door(url, key, found, served)
            # What a gateway makes once: processes beside for large bodies, connections, buffers.
            for size in (1, 300_000) * 3:
                wire = request(CHAT, secret, ASK | {"user": "a" * size})
                assert await answered(made, wire) in (200, 400)
            async with watched(made):
                yield made


@pytest.fixture
def door(watched_door: Door) -> Door:
    watched_door.begin()
    return watched_door


async def answered(door: Door, wire: bytes) -> int:
    """Return the status of the answer to a request that is sent whole."""
    async with RawClient(door.url) as client:
        await client.send(wire)
        return status_of(await client.read(seconds=WARM_SECONDS))


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@dataclass
class Pouring:
    """What a client sends that does not end."""

    piece: bytes
    sent_bytes: int = 0

    async def run(self, client: RawClient) -> None:
        """Send the piece again and again until nobody takes it any more."""
        with suppress(ConnectionError):
            while self.sent_bytes < ENDLESS_BYTES:
                await client.send(self.piece)
                self.sent_bytes += len(self.piece)
                await asyncio.sleep(0)  # whoever reads


async def endless(door: Door, start: bytes, piece: bytes) -> tuple[int, int]:
    """Send what does not end; return the status that is told, and after how many bytes."""
    async with RawClient(door.url) as client:
        await client.send(start)
        pouring = Pouring(piece)
        sending = asyncio.create_task(pouring.run(client))
        told = status_of(await client.read())
        sent_bytes = pouring.sent_bytes
        await sending
        return told, sent_bytes


A = b"a" * PIECE_BYTES
SMALL = b"a:b\r\n" * (PIECE_BYTES // 5)
CHUNK = b"%x\r\n%b\r\n" % (PIECE_BYTES, b" " * PIECE_BYTES)
ENDLESS: dict[str, tuple[Callable[[bytes], bytes], bytes, int]] = {
    "a header": (lambda _: HEAD + b"x: ", A, 431),
    "a header's name": (lambda _: HEAD, A, 431),
    "headers": (lambda _: HEAD, SMALL, 431),
    "headers behind a key": (lambda key: HEAD + key, SMALL, 431),
    "an address": (lambda _: b"GET /", A, 431),
    "an address of escapes": (lambda _: b"GET /", b"%41" * 20_000, 431),
    "a method": (lambda _: b"", A, 400),
    "an extension": (lambda key: HEAD + key + CHUNKS + b"\r\n1;", A, 431),
    "extensions": (lambda key: HEAD + key + CHUNKS + b"\r\n", b"1;%b\r\n \r\n" % A[:999] * 64, 431),
    "a size": (lambda key: HEAD + key + CHUNKS + b"\r\n", b"0" * PIECE_BYTES, 431),
    "small chunks": (lambda key: HEAD + key + CHUNKS + b"\r\n", b"1\r\n \r\n" * 10_000, 431),
    "a trailer": (lambda key: HEAD + key + CHUNKS + b"\r\n0\r\nx: ", A, 431),
    "trailers": (lambda key: HEAD + key + CHUNKS + b"\r\n0\r\n", SMALL, 431),
    "a body": (lambda key: HEAD + key + CHUNKS + b"\r\n", CHUNK, 413),
    "a body without a key": (lambda _: HEAD + CHUNKS + b"\r\n", CHUNK, 401),
    "a body of a length": (lambda key: HEAD + key + b"content-length: %d\r\n\r\n" % 10**12, A, 413),
    "a body of a length, without a key": (
        lambda _: HEAD + b"content-length: %d\r\n\r\n" % 10**12,
        A,
        401,
    ),
    "empty lines": (lambda _: b"", b"\r\n" * (PIECE_BYTES // 2), 431),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_what_does_not_end_is_refused_at_once(door: Door, what: str) -> None:
    make, piece, status = ENDLESS[what]
    told, sent_bytes = await endless(door, make(door.key), piece)
    assert told == status
    assert sent_bytes < SENT_BYTES_MAX
    await door.check(what)


SLOW = {
    "nothing": b"",
    "a method": b"POST",
    "a head of small headers": HEAD + b"aa:bb\r\n" * 500,
    "a head of more headers than are read": HEAD + b"aa:bb\r\n" * 3_000,
    "a head of large headers": HEAD + b"x: %b\r\n" % (b"a" * 4_000) * 5,
    "a header": HEAD + b"x: " + b"a" * 20_000,
    "an address": b"GET /" + b"a" * 4_000,
    "a body without a key": HEAD + b"content-length: 100000\r\n\r\n" + b" " * 20_000,
}


@pytest.mark.parametrize("what", SLOW)
async def test_many_slow_clients_hold_little(door: Door, what: str) -> None:
    async with AsyncExitStack() as held:
        for _ in range(SLOW_CONNECTIONS):
            client = await held.enter_async_context(RawClient(door.url))
            await client.send(SLOW[what])
        await door.check(what)
    await door.check(what)


def body(**fields: object) -> bytes:
    return json.dumps(ASK | fields).encode()


DEEP = 20_000
FLOODS = {
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep lists that do not end": b"[" * 500_000,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep in a field": body()[:-1] + b', "metadata": ' + b"[" * 9_999 + b"]" * 9_999 + b"}",
    "a number of many digits": body()[:-1] + b', "seed": ' + b"9" * 30_000 + b"}",
    "a number beyond all": body()[:-1] + b', "temperature": 1e999999999}',
    "a number of many decimals": body()[:-1] + b', "temperature": 9.' + b"9" * 30_000 + b"}",
    "a field ten thousand times": body()[:-1] + b', "x": 1' * 10_000 + b"}",
    "a known field ten thousand times": body()[:-1] + b', "seed": -1' * 9_999 + b', "n": -1}',
    "no UTF-8": body()[:-1] + b', "user": "' + b"\xff\xfe\xc0\x80" * 5_000 + b'"}',
    "half a letter": body()[:-1] + b', "user": "' + rb"\ud800" * 5_000 + b'"}',
    "a name that is never closed": body()[:-1] + b', "' + b"a" * 900_000,
    "a field of 900 KB": body(**{"x" * 900_000: 1}),
    "nothing": b"",
    "zeros": bytes(100_000),
}


async def flood(door: Door, body: bytes) -> float:
    """Send a body again and again; return how many seconds the fastest answer took."""
    wire = HEAD + door.key + b"content-length: %d\r\n\r\n" % len(body) + body
    seconds = []
    async with RawClient(door.url) as client:
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            await client.send(wire)
            assert status_of(await client.read()) == 400
            seconds.append(time.perf_counter() - begun)
    return min(seconds)


@pytest.mark.parametrize("what", FLOODS)
async def test_a_flood_of_hostile_bodies_is_refused(door: Door, what: str) -> None:
    hostile = FLOODS[what]
    assert await flood(door, hostile) < SECONDS_MAX
    await asyncio.gather(*(flood(door, hostile) for _ in range(AT_ONCE)))
    await door.check(what)


async def test_a_flood_of_connections_is_refused(door: Door) -> None:
    for _ in range(ONE_BY_ONE):
        async with RawClient(door.url) as client:
            await client.send(b"\x16\x03\x01\x02\x00\x01")
            assert status_of(await client.read()) == 400
    await door.check("connections")
