"""A client that reads slowly, or not at all, holds up nobody and pays for what was made for it."""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.gateway.http import connection, write_buffer
from serving.gateway.http.response import unsent_bytes
from serving.gateway.http.write_buffer import ClientTooSlow, WriteBuffer, WriteMemory
from serving.pool.overload import Holder
from serving.pool.slot_request import SlotRequest
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {
    "model": "demo",
    "messages": MESSAGES,
    "max_tokens": 256,
    "stream": True,
    "ignore_eos": True,
    "n": 8,
    "temperature": 1,
}


class Line:
    """A connection that may be blocked."""

    def __init__(self) -> None:
        self.is_blocked = False
        self.is_aborted = False
        self.unsent_bytes = 0
        self.sent: list[bytes] = []
        self._writable = asyncio.Event()
        self._writable.set()

    def pause(self) -> None:
        self.is_blocked = True
        self._writable.clear()

    def resume(self) -> None:
        self.is_blocked = False
        self._writable.set()

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    async def drain(self) -> None:
        await self._writable.wait()

    def abort(self) -> None:
        self.is_aborted = True


class Sipped(Line):
    """A blocked connection of which a byte was taken whenever somebody looks."""

    looks = 0

    @property
    def unsent_bytes(self) -> int:  # type: ignore[override]
        self.looks += 1
        return 10_000 - self.looks

    @unsent_bytes.setter
    def unsent_bytes(self, value: int) -> None:
        pass


async def test_what_a_blocked_client_does_not_take_gathers_and_leaves_in_order() -> None:
    line, pending = Line(), WriteMemory()
    out = WriteBuffer(line, pending)
    out.put(b"1")
    line.pause()
    for number in b"23456":
        out.put(bytes([number]))
    assert line.sent == [b"1"]
    assert pending.total_bytes > 0
    line.resume()
    await out.flush()
    assert b"".join(line.sent) == b"123456"
    assert pending.total_bytes == 0
    out.put(b"7")
    assert line.sent[-1] == b"7"


def stalled(pending: WriteMemory, holder: Holder) -> tuple[Line, WriteBuffer]:
    """Return the way out to a client that takes nothing."""
    line = Line()
    line.pause()
    return line, WriteBuffer(line, pending, holder)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 300), st.booleans()), max_size=60))
def test_an_organization_without_room_loses_its_own_streams_and_no_others(
    writes: list[tuple[str, int, bool]],
) -> None:
    asyncio.run(write_to_stalled(writes))


async def write_to_stalled(writes: list[tuple[str, int, bool]]) -> None:
    pending, streams = WriteMemory(2_000), list[tuple[str, Line, WriteBuffer]]()
    for name, size, is_new in writes:
        of_it = [each for each in streams if each[0] == name and not each[1].is_aborted]
        if is_new or not of_it:
            of_it = [(name, *stalled(pending, SlotRequest(name)))]
            streams += of_it
        _, line, stream = of_it[0]
        cut_before = {id(other) for _, other, _ in streams if other.is_aborted}
        before = {id(other): out.kept_bytes for _, other, out in streams}
        try:
            stream.put(bytes(size))
        except ClientTooSlow:
            stream.abort()
        cut = [each for each in streams if each[1].is_aborted and id(each[1]) not in cut_before]
        assert {other for other, _, _ in cut} <= {name}
        assert all(before[id(other)] >= before[id(line)] for _, other, _ in cut)
        assert pending.total_bytes == sum(out.kept_bytes for _, _, out in streams) <= 1_000
        # Each organization leaves half of what it found.
        assert 1_000 - pending.total_bytes >= 1_000 // 8
    for _, _, stream in streams:
        stream.abort()
    assert (pending.total_bytes, pending._streams) == (0, {})


async def test_a_neighbour_keeps_as_much_beside_the_stalled_streams_of_one_as_alone() -> None:
    """256 streams of one organization, or of fifty that never paid, want 1 MiB each."""
    piece, pieces = bytes(write_buffer.PIECE_BYTES), 16
    for flood in (
        [SlotRequest("flood")] * 256,
        [SlotRequest(f"new_{n % 50}", is_paying=False) for n in range(256)],
    ):
        pending = WriteMemory()
        streams = [stalled(pending, holder) for holder in flood]
        for _, stream in streams:
            with suppress(ClientTooSlow):
                for _ in range(pieces):
                    stream.put(piece)
        assert any(line.is_aborted for line, _ in streams)
        line, neighbour = stalled(pending, SlotRequest("neighbour"))
        for _ in range(pieces):
            neighbour.put(piece)
        assert neighbour.kept_bytes == write_buffer.PENDING_BYTES_MAX
        assert not line.is_aborted
        for _, stream in [*streams, (line, neighbour)]:
            stream.abort()
        assert pending.total_bytes == 0


async def test_the_tail_of_an_answer_is_given_up_when_nothing_of_it_is_taken() -> None:
    class Transport:
        def __init__(self, *sizes: int) -> None:
            self.sizes, self.is_aborted = list(sizes), False

        def get_write_buffer_size(self) -> int:
            return self.sizes.pop(0)

        def get_extra_info(self, name: str) -> None:
            return None

        def abort(self) -> None:
            self.is_aborted = True

    class Tail(connection.HttpConnection):
        def __init__(self, transport: Transport) -> None:
            self.transport, self.exchange = transport, None  # type: ignore[assignment]
            self.watched: list[int] = []

        def _watch_tail(self, left_bytes: int) -> None:
            self.watched.append(left_bytes)

    stuck, slow, done = Tail(Transport(9)), Tail(Transport(5)), Tail(Transport(0))
    for tail in (stuck, slow, done):
        tail._check_tail(9)
    assert [tail.transport.is_aborted for tail in (stuck, slow, done)] == [True, False, False]  # type: ignore[attr-defined]
    assert (slow.watched, done.watched) == ([5], [0])


async def test_a_long_answer_taken_far_too_slowly_is_a_stall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_buffer, "STALL_SECONDS", 0.1)
    monkeypatch.setattr(write_buffer, "SLOWEST_BYTES", 100 * write_buffer.PIECE_BYTES)
    monkeypatch.setattr(Line, "drain", lambda line: asyncio.sleep(0.02))
    line, pending = Line(), WriteMemory()
    line.pause()
    with pytest.raises(ClientTooSlow):
        await WriteBuffer(line, pending).pour(bytes(20 * write_buffer.PIECE_BYTES))
    assert 0 < len(line.sent) < 20


async def test_of_whole_answers_those_go_that_are_taken_most_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_buffer, "PENDING_BYTES_MAX", write_buffer.PIECE_BYTES)
    answer = bytes(20 * write_buffer.PIECE_BYTES)
    monkeypatch.setattr(write_buffer, "ALL_PENDING_BYTES_MAX", 4 * len(answer))
    pending, lines = WriteMemory(), [Line() for _ in range(12)]
    for line in lines[:-1]:
        line.pause()

    async def pour(line: Line) -> int:
        return len(await WriteBuffer(line, pending).pour(answer))

    stuck = []
    for line in lines[:-1]:
        stuck.append(asyncio.create_task(pour(line)))
        await asyncio.sleep(0.005)
        assert pending.total_bytes <= 4 * len(answer)
    # Who has just come is not cut for it, nor who takes: the oldest of the stuck ones are.
    assert await pour(lines[-1]) == write_buffer.PIECE_BYTES
    assert [task.done() for task in stuck] == [True] * 8 + [False] * 3
    with pytest.raises(ClientTooSlow):
        await stuck[0]
    for line in lines:
        line.resume()
    assert await asyncio.gather(*stuck[8:]) == [write_buffer.PIECE_BYTES] * 3
    await asyncio.gather(*stuck, return_exceptions=True)
    assert pending.total_bytes == 0


async def test_whole_answers_leave_half_of_the_room_to_streams() -> None:
    answer = bytes(4 * write_buffer.PIECE_BYTES)
    pending, lines = WriteMemory(2 * len(answer)), [Line() for _ in range(3)]
    for line in lines:
        line.pause()
    poured = [asyncio.create_task(WriteBuffer(line, pending).pour(answer)) for line in lines[:2]]
    await asyncio.sleep(0.005)
    stream = WriteBuffer(lines[2], pending, SlotRequest("b"))
    stream.put(answer[: len(answer) // 2])
    assert pending.total_bytes == 1.5 * len(answer)
    await eventually(poured[0].done)
    assert not poured[1].done()
    with pytest.raises(ClientTooSlow):
        stream.put(bytes(write_buffer.PIECE_BYTES + 1))
    assert not poured[1].done()
    stream.abort()
    lines[1].resume()
    await asyncio.gather(*poured, return_exceptions=True)
    assert pending.total_bytes == 0


async def test_slow_readers_of_whole_answers_hold_no_more_than_all_may(stack: Stack) -> None:
    await stack.offer_embeddings()
    ask = {"model": "demo-embed", "input": ["A penstock is"] * 2_000}
    async with stack.post("/v1/embeddings", ask) as reply:
        size = len(await reply.read())
    assert size > 10 * write_buffer.PIECE_BYTES
    pending, most = stack.gateway.app.write_memory, 0
    pending.bytes_max = 2 * size
    async with AsyncExitStack() as readers:
        for number in range(5):
            client = RawClient(stack.url, receive_bytes=2_048)
            await readers.enter_async_context(client)
            await client.send(request("/v1/embeddings", stack.tenant.secret, ask))
            await client.read(16)
            most = max(most, pending.total_bytes)
            await eventually(lambda n=number: stack.gateway.app.in_flight == min(n + 1, 2))
        assert size <= most <= 2 * size
        async with stack.post("/v1/embeddings", ask) as reply:
            assert len(await reply.read()) == size
    await eventually(lambda: stack.gateway.app.in_flight == 0)
    assert pending.total_bytes == 0


async def test_too_much_is_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_buffer, "PENDING_BYTES_MAX", 100)
    line, pending = Line(), WriteMemory()
    out = WriteBuffer(line, pending)
    line.pause()
    with pytest.raises(ClientTooSlow):
        for _ in range(200):
            out.put(b"x")
            await asyncio.sleep(0)
    out.abort()
    assert line.is_aborted
    assert pending.total_bytes == 0


async def test_a_client_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_buffer, "STALL_SECONDS", 0.02)
    line, pending = Line(), WriteMemory()
    out = WriteBuffer(line, pending)
    line.pause()
    out.put(b"x")
    with pytest.raises(ClientTooSlow):
        await out.flush()
    await asyncio.sleep(0.05)
    with pytest.raises(ClientTooSlow):
        out.put(b"y")
    out.drop()


async def test_a_client_that_takes_a_little_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_buffer, "STALL_SECONDS", 0.02)
    monkeypatch.setattr(write_buffer, "SLOWEST_END_BYTES", 1)
    line = Sipped()
    out = WriteBuffer(line, WriteMemory())
    line.pause()
    out.put(b"x")
    flushed = asyncio.create_task(out.flush())
    await eventually(lambda: line.looks >= 20)
    assert not flushed.done()
    line.resume()
    await flushed
    assert line.sent == [b"x"]


async def test_what_a_stream_left_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_buffer, "STALL_SECONDS", 0.02)
    monkeypatch.setattr(write_buffer, "SLOWEST_END_BYTES", 10_000)
    line = Line()
    line.pause()
    line.unsent_bytes = 1_000
    flushed = asyncio.create_task(WriteBuffer(line, WriteMemory()).flush())
    async with asyncio.timeout(60):
        while not flushed.done():
            line.unsent_bytes -= 1
            await asyncio.sleep(0.005)
    with pytest.raises(ClientTooSlow):
        await flushed


class Waits:
    """asyncio, where the time for which a client may take nothing is over when the test says so."""

    def __init__(self) -> None:
        self.of_stalls: list[asyncio.Timeout] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        made = asyncio.timeout(10 * seconds)
        if seconds == write_buffer.STALL_SECONDS:
            self.of_stalls.append(made)
        return made

    def end(self) -> None:
        self.of_stalls[-1].reschedule(asyncio.get_running_loop().time())


async def test_who_reads_slowly_gets_all_of_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits()
    monkeypatch.setattr(write_buffer, "asyncio", waits)
    async with RawClient(stack.url, receive_bytes=2_048) as client:
        await client.send(request(CHAT, stack.tenant.secret, ASK | {"logprobs": True}))
        told = bytearray(await client.read(16))
        await eventually(lambda: stack.gateway.app.write_memory.total_bytes > 0)
        [connection] = stack._server.connections
        for number in range(1, 8):
            await eventually(lambda count=number: len(waits.of_stalls) == count)
            before = unsent_bytes(connection.transport)
            while unsent_bytes(connection.transport) >= before:
                told += await client.read(1_024)
            waits.end()
        assert stack.gateway.app.in_flight == 1
        while not told.endswith(b"0\r\n\r\n"):
            told += await client.read()
    assert b"data: [DONE]" in told
    assert (await stack.one_event()).outcome == "completed"


async def test_the_engine_is_read_on_and_all_of_it_is_billed(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_buffer, "STALL_SECONDS", 1.0)
    async with RawClient(stack.url, receive_bytes=2_048) as client:
        await client.send(request(CHAT, stack.tenant.secret, ASK))
        await client.read(16)
        await eventually(lambda: not stack.engines[0].engine.running)
        await eventually(lambda: stack.gateway.app.in_flight == 0)
    event = await stack.one_event()
    assert event.outcome in ("completed", "client_cancelled")
    assert event.output_tokens == 8 * 256
    assert sum(charge.charged_nanos for charge in event.charges) > 0


async def test_a_neighbour_is_served_meanwhile(stack: Stack) -> None:
    async with RawClient(stack.url, receive_bytes=2_048) as client:
        await client.send(request(CHAT, stack.tenant.secret, ASK))
        await client.read(16)
        answer = await stack.client().chat.completions.create(
            model="demo", messages=MESSAGES, max_tokens=2, timeout=60
        )
        assert answer.choices[0].message.content


async def test_stalled_streams_of_another_cut_off_no_slow_client(stack: Stack) -> None:
    neighbour, known = catalog.tenant("b"), stack.gateway.directory.authenticator
    catalog.publish(stack.control, neighbour)
    await eventually(lambda: known.find(neighbour.key.digest))
    pending = stack.gateway.app.write_memory = WriteMemory(2 * write_buffer.PENDING_BYTES_MAX)
    wire = request(CHAT, stack.tenant.secret, ASK | {"logprobs": True})
    async with AsyncExitStack() as readers:
        for _ in range(6):
            client = RawClient(stack.url, receive_bytes=2_048)
            await readers.enter_async_context(client)
            await client.send(wire)
        await eventually(lambda: len(stack.events) >= 3)
        async with RawClient(stack.url, receive_bytes=2_048) as slow:
            await slow.send(request(CHAT, neighbour.secret, ASK))
            told = bytearray(await slow.read(16))
            await eventually(lambda: pending._streams.get("org_b"))
            [kept] = pending._streams["org_b"]
            await eventually(lambda: kept.kept_bytes > write_buffer.PIECE_BYTES)
            while not told.endswith(b"0\r\n\r\n"):
                told += await slow.read()
        assert b"data: [DONE]" in told


async def test_the_connection_of_a_client_that_takes_nothing_is_closed(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_buffer, "PENDING_BYTES_MAX", 100)
    connections = stack._server.connections
    async with RawClient(stack.url, receive_bytes=2_048) as client:
        await client.send(request(CHAT, stack.tenant.secret, ASK | {"logprobs": True}))
        await client.read(16)
        event = await stack.one_event()
        assert event.outcome == "client_cancelled"
        await eventually(lambda: not connections)
