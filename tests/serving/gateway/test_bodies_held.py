"""Large bodies of one organization leave room for those of others."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.gateway.errors import ServiceUnavailable
from serving.gateway.http.request import BodyReservation
from serving.pool.overload import SharedCapacity
from serving.pool.slot_request import SlotRequest
from tests.fixtures.gateway import MESSAGES, running_stack
from tests.fixtures.raw_http import RawClient
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 400), st.booleans()), max_size=60))
def test_never_too_much_and_a_newcomer_finds_room(deeds: list[tuple[str, int, bool]]) -> None:
    bodies, held = SharedCapacity(1_000), list[tuple[str, int, BodyReservation]]()
    for who, size, ends in deeds:
        body = BodyReservation(bodies, SlotRequest(who))
        of = Counter[str]()
        for other, bytes_, _ in held:
            of[other] += bytes_
        left = 1_000 - of.total() - size
        if of[who] + size <= left:
            body.grow(size)
            held.append((who, size, body))
        else:
            with pytest.raises(ServiceUnavailable):
                body.grow(size)
        if ends and held:
            held.pop(0)[2].release()
        assert bodies.held == sum(size for _, size, _ in held) <= 1_000
        # Each leaves half of what it found.
        assert 1_000 - bodies.held >= 1_000 // 8
    for _, _, body in held:
        body.release()
    assert bodies.held == 0


def test_weight_counts() -> None:
    bodies = SharedCapacity(900)
    BodyReservation(bodies, SlotRequest("heavy", weight=2)).grow(600)
    with pytest.raises(ServiceUnavailable):
        BodyReservation(bodies, SlotRequest("heavy", weight=2)).grow(1)
    BodyReservation(bodies, SlotRequest("light")).grow(150)


def test_fifty_that_never_paid_leave_a_neighbour_what_one_of_them_would() -> None:
    for attackers in (1, 50):
        bodies = SharedCapacity(64_000)
        for number in range(attackers):
            body = BodyReservation(bodies, SlotRequest(f"new_{number}", is_paying=False))
            with suppress(ServiceUnavailable):
                for _ in range(64):
                    body.add(1_000)
        assert bodies.held <= 32_000, f"{attackers} took more than one may"
        BodyReservation(bodies, SlotRequest("neighbour")).grow(16_000)


def test_of_those_that_never_paid_one_leaves_room_for_another() -> None:
    bodies = SharedCapacity(64_000)
    greedy = BodyReservation(bodies, SlotRequest("new_1", is_paying=False))
    with suppress(ServiceUnavailable):
        for _ in range(64):
            greedy.add(1_000)
    BodyReservation(bodies, SlotRequest("new_2", is_paying=False)).grow(8_000)


async def test_a_body_that_finds_no_room_is_refused_and_others_are_served(tmp_path: Path) -> None:
    async with running_stack(tmp_path) as stack, AsyncExitStack() as held:
        stack.gateway.app.inference.body_memory = SharedCapacity(200_000)
        key = f"authorization: Bearer {stack.tenant.secret}".encode()
        head = b"POST %b HTTP/1.1\r\nhost: x\r\n%b\r\n" % (CHAT.encode(), key)
        slow = await held.enter_async_context(RawClient(stack.url))
        await slow.send(head + b"content-length: 100000\r\n\r\n" + b" " * 90_000)
        await eventually(lambda: stack.gateway.app.inference.body_memory.held == 90_000)
        large = {"model": "demo", "messages": MESSAGES, "user": "x" * 40_000}
        async with stack.post(CHAT, large) as reply:
            assert reply.status == 503
            assert reply.headers["retry-after"] == "1"
            assert (await reply.json())["error"]["code"] == "server_is_overloaded"
        small = {"model": "demo", "messages": MESSAGES, "max_tokens": 2}
        async with stack.post(CHAT, small) as reply:
            assert reply.status == 200
        pieces = b"%x\r\n%b\r\n" % (40_000, b" " * 40_000)
        chunked = await held.enter_async_context(RawClient(stack.url))
        await chunked.send(head + b"transfer-encoding: chunked\r\n\r\n" + pieces)
        assert (await chunked.read()).startswith(b"HTTP/1.1 503 ")
        slow.socket.close()
        await eventually(lambda: not stack.gateway.app.inference.body_memory.held)
        async with stack.post(CHAT, small | {"stop": "x" * 200}) as reply:
            assert json.loads(await reply.read())["choices"]
    await asyncio.sleep(0)
