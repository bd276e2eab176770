"""Who holds connections and asks nothing keeps nobody out."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.environment import ConfigError
from serving.gateway import config
from serving.gateway.http.connection_limits import ConnectionLimits, place_of
from serving.gateway.inference import REQUESTS_SHARE
from serving.pool.overload import SharedCapacity
from serving.pool.slot_request import SlotRequest
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
ASK = {"model": "demo", "messages": MESSAGES, "max_tokens": 2}


class Line:
    """A connection that only remembers."""

    def __init__(self) -> None:
        self.is_closed = False

    def close_now(self) -> None:
        self.is_closed = True


DEEDS = st.lists(
    st.tuples(st.sampled_from(["enter", "busy", "idle", "leave"]), st.integers(0, 2**16)),
    max_size=80,
)


@given(DEEDS, st.integers(1, 6), st.integers(1, 4))
def test_never_too_many_and_only_idle_ones_are_closed(
    deeds: list[tuple[str, int]], most: int, most_of_one: int
) -> None:
    connections = ConnectionLimits(most, most_of_one)
    known: dict[Line, str] = {}
    idle: dict[Line, None] = {}
    for deed, chance in deeds:
        if deed == "enter":
            line, address = Line(), "abc"[chance % 3]
            of_it = [each for each in known if known[each] == address]
            crowd = of_it if len(of_it) >= most_of_one else list(known)
            is_full = len(of_it) >= most_of_one or len(known) >= most
            oldest = next((each for each in idle if each in crowd), None)
            assert connections.enter(line, address) == (not is_full or oldest is not None)
            if not is_full or oldest is not None:
                known[line], idle[line] = address, None
            if is_full and oldest is not None:
                assert oldest.is_closed
                idle.pop(oldest)
                connections.leave(oldest, known.pop(oldest))
        elif known:
            line = list(known)[chance % len(known)]
            if deed == "busy":
                connections.note_busy(line, known[line])
                idle.pop(line, None)
            elif deed == "idle" and line not in idle:
                connections.note_idle(line, known[line])
                idle[line] = None
            elif deed == "leave":
                connections.leave(line, known.pop(line))
                idle.pop(line, None)
        assert len(connections) == len(known) <= most
        assert not any(line.is_closed for line in known)


def test_of_ipv6_a_network_counts_as_one_address() -> None:
    one = place_of("2001:db8:0:7::1")
    assert one == place_of("2001:db8::7:ffff:ffff:ffff:ffff") == "2001:db8:0:7::/64"
    assert one != place_of("2001:db8:0:8::1")
    assert place_of("fe80::1%eth0") == "fe80::/64"
    assert place_of("::ffff:192.0.2.1") == place_of("192.0.2.1") == "192.0.2.1"


async def test_idle_connections_make_room_for_who_asks(tmp_path: Path) -> None:
    async with running_stack(tmp_path) as stack, AsyncExitStack() as held:
        lines = stack.gateway.connections
        await eventually(lambda: not len(lines))
        lines.most = lines.most_of_one = 20
        for number in range(100):
            client = await held.enter_async_context(RawClient(stack.url))
            await client.send((b"", b"POST", b"POST / HTTP/1.1\r\nx: ")[number % 3])
        await eventually(lambda: lines.closed_idle >= 80)
        async with stack.post(CHAT, ASK) as reply:
            assert reply.status == 200
        assert len(lines) <= 21
        assert lines.refused == 0


async def test_where_all_are_busy_the_next_is_told_to_come_back(tmp_path: Path) -> None:
    async with running_stack(tmp_path, itl_seconds=0.05) as stack, AsyncExitStack() as held:
        lines = stack.gateway.connections
        lines.most = lines.most_of_one = 3
        wire = request(CHAT, stack.tenant.secret, ASK | {"stream": True, "max_tokens": 100})
        for _ in range(3):
            client = await held.enter_async_context(RawClient(stack.url))
            await client.send(wire)
            assert b"200 OK" in await client.read()
        async with RawClient(stack.url) as late:
            told = await late.read_all()
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in told
        assert lines.refused == 1


REQUESTS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "new_1", "new_2"]), st.booleans()), max_size=300
)


def asks(name: str) -> SlotRequest:
    return SlotRequest(name, is_paying=not name.startswith("new_"))


@given(REQUESTS, st.integers(90, 200))
def test_one_organization_leaves_connections_to_the_next_and_gets_nearly_all_alone(
    requests: list[tuple[str, bool]], most: int
) -> None:
    for flood in (["a"], ["new_1"], [f"new_{number}" for number in range(50)]):
        room = SharedCapacity(most, REQUESTS_SHARE)
        for name in flood * most:
            if room.fits(asks(name), 1):
                room.add(asks(name), 1)
        assert most * 3 // 4 <= room.held <= most * 8 // 9
        assert room.fits(asks("neighbour"), most // 12)
    room, held = SharedCapacity(most, REQUESTS_SHARE), list[SlotRequest]()
    for name, ends in requests:
        if room.fits(asks(name), 1):
            room.add(asks(name), 1)
            held.append(asks(name))
        if ends and held:
            room.add(held.pop(0), -1)
        assert room.held == len(held) < most


@asynccontextmanager
async def connected(stack: Stack, address: str) -> AsyncIterator[RawClient]:
    """Connect from an address of this machine."""
    client = RawClient(stack.url)
    client.socket.bind((address, 0))
    async with client:
        yield client


async def test_an_organization_with_connections_from_four_addresses_keeps_no_other_out(
    tmp_path: Path,
) -> None:
    async with running_stack(tmp_path, itl_seconds=0.05) as stack, AsyncExitStack() as held:
        neighbour, known = catalog.tenant("b"), stack.gateway.directory.authenticator
        catalog.publish(stack.control, neighbour)
        await eventually(lambda: known.find(neighbour.key.digest))
        lines = stack.gateway.connections
        await eventually(lambda: not len(lines))
        lines.most, lines.most_of_one = 40, 10
        stack.gateway.app.inference.in_progress = SharedCapacity(lines.most, REQUESTS_SHARE)
        body = ASK | {"stream": True, "max_tokens": 200, "ignore_eos": True}
        refused = []
        for number in range(40):
            client = await held.enter_async_context(connected(stack, f"127.0.0.{2 + number // 10}"))
            await client.send(request(CHAT, stack.tenant.secret, body))
            await eventually(
                lambda n=number: stack.gateway.app.inference.in_progress.held == min(n + 1, 35)
            )
            if number >= 35:
                refused.append(await client.read_all())
        for told in refused:
            assert told.startswith(b"HTTP/1.1 429 ")
            assert b"connection: close" in told
            assert b"Too many of your organization's requests are in progress." in told
        wire = f"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-api-key: {neighbour.secret}\r\n\r\n"
        for _ in range(10):
            client = await held.enter_async_context(connected(stack, "127.0.0.9"))
            await client.send(wire.encode())
            assert (await client.read()).startswith(b"HTTP/1.1 200 ")
        assert lines.refused == 0


async def test_answers_that_nobody_takes_any_more_make_room(tmp_path: Path) -> None:
    """A connection that closes after its answer waits for the client to take it."""
    async with running_stack(tmp_path) as stack, AsyncExitStack() as held:
        await stack.offer_embeddings()
        lines = stack.gateway.connections
        await eventually(lambda: not len(lines))
        lines.most = lines.most_of_one = 3
        body = {"model": "demo-embed", "input": ["A penstock is"] * 330}
        wire = request("/v1/embeddings", stack.tenant.secret, body, extra=b"connection: close\r\n")
        for number in range(3):
            client = RawClient(stack.url, receive_bytes=2_048)
            await held.enter_async_context(client)
            await client.send(wire)
            await client.read(1)
            await eventually(lambda n=number: len(stack.events) == n + 1)
        await eventually(lambda: stack.gateway.app.in_flight == 0)
        assert len(lines) == 3
        async with stack.post(CHAT, ASK) as reply:
            assert reply.status == 200


def test_too_few_files_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config.resource, "getrlimit", lambda _: (100, 100))
    with pytest.raises(ConfigError, match=r"100 files may be open; wanted at least 256"):
        config.raise_open_files_limit()


def test_a_request_has_two_files() -> None:
    assert config.connections_max(1_128) == 500
