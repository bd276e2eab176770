"""The relay, where an engine's whole answer is there at once."""

import asyncio
from typing import Any, cast

import pytest

from serving.engine.events import EngineEvent, TokenUsage
from serving.gateway.cancel_scope import CancelScope, RequestCancelled
from serving.gateway.http.response import HttpResponse
from serving.gateway.relay import Relay
from serving.pool.slot_request import SlotRequest


class Said:
    """An answer that never makes its reader wait."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = [*pieces, b""]

    async def status(self) -> int:
        return 200

    async def read(self) -> bytes:
        return self.pieces.pop(0)

    def read_nowait(self) -> bytes:
        return b""


class Heard:
    """A reading that knows what was taken from the first piece on."""

    is_whole = False
    piece_bytes = 1_024
    tokens = TokenUsage(3, 0, 1)
    has_usage = True

    def feed(self, data: bytes) -> list[EngineEvent]:
        return [EngineEvent(data, None)] if data else []

    def finish(self) -> None:
        return None


class Nothing:
    """A rendering of which nobody sees anything."""

    headers = ()

    def finish(self, *_: Any) -> bytes:
        return b"the end"


async def test_work_that_ends_for_nobody_leaves_no_cancellation_behind() -> None:
    interrupts = CancelScope(60.0)
    relay = Relay(
        cast(Any, Heard()),
        cast(Any, Nothing()),
        cast(HttpResponse, None),
        interrupts,
        holder=SlotRequest("org_a"),
        render_offload=cast(Any, None),
        inline_bytes_max=2**30,
        gap_seconds=60.0,
        observe_gaps=lambda gaps: None,
    )
    interrupts.detach(60.0)
    with pytest.raises(RequestCancelled) as caught, interrupts:
        await relay.run(Said(b"all of it"), lambda: None, lambda: None)
    assert caught.value.reason == "client_gone"
    # The event of what it took is made durable now, which nothing may break off.
    await asyncio.sleep(0)
    assert relay.final_bytes == b""
