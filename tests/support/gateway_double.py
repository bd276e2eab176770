"""A stand-in for the gateway, spoken to over HTTP: what the console's own tests need of one."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from aiohttp import web

ANSWER = "Penstock serves language models, counts each token once and prices it right."
WORDS = ANSWER.split()
USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": len(WORDS),
    "total_tokens": 120 + len(WORDS),
    "prompt_tokens_details": {"cached_tokens": 96},
}

SAID: list[dict[str, Any]] = [{"content": f"{word} "} for word in WORDS]
ARGUMENTS = '{"city": "Rome"}'
CALLED: list[dict[str, Any]] = [
    {"tool_calls": [piece]}
    for piece in (
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather"}},
        {"index": 0, "function": {"arguments": ARGUMENTS[:6]}},
        {"index": 0, "function": {"arguments": ARGUMENTS[6:]}},
    )
]


class GatewayDouble:
    """Answers every chat with the same words, or with a call where it is offered tools and none has
    spoken last; told to, it refuses, breaks off or goes slowly."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.secrets: list[str] = []
        self.refusals: list[tuple[int, dict[str, Any]]] = []
        self.pause_seconds = 0.0
        self.breaks_off = False
        self.aborted = Event()
        self.url = ""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.secrets.append(request.headers["authorization"].removeprefix("Bearer "))
        if self.refusals:
            status, error = self.refusals.pop(0)
            return web.json_response({"error": error}, status=status)
        reply = web.StreamResponse(
            headers={"content-type": "text/event-stream", "x-request-id": str(uuid.uuid4())}
        )
        await reply.prepare(request)
        try:
            await self.answer(reply)
        except (ConnectionError, asyncio.CancelledError):
            self.aborted.set()
            raise
        return reply

    async def answer(self, reply: web.StreamResponse) -> None:
        asked = self.bodies[-1]
        is_called = "tools" in asked and asked["messages"][-1]["role"] != "tool"
        for delta in CALLED if is_called else SAID:
            await send(reply, {"choices": [{"index": 0, "delta": delta}]})
            await asyncio.sleep(self.pause_seconds)
        if self.breaks_off:
            error = {"message": "x", "type": "api_error", "param": None, "code": "engine_failed"}
            await send(reply, {"error": error})
            return
        await send(reply, {"choices": [], "usage": USAGE})
        await reply.write(b"data: [DONE]\n\n")


async def send(reply: web.StreamResponse, record: dict[str, Any]) -> None:
    await reply.write(b"data: " + json.dumps(record).encode() + b"\n\n")


@contextmanager
def running_gateway() -> Iterator[GatewayDouble]:
    """Run the double in a thread with its own event loop."""
    double = GatewayDouble()
    ready, loop = Event(), asyncio.new_event_loop()

    async def start() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", double.chat)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        double.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        ready.set()
        await stopped.wait()
        await runner.cleanup()

    stopped = asyncio.Event()
    thread = Thread(target=loop.run_until_complete, args=(start(),))
    thread.start()
    ready.wait(10)
    try:
        yield double
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(10)
        loop.close()
