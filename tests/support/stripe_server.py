"""Stripe's double behind HTTP, for the processes and tests that reach it by an address, and its
webhooks in a storm."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from aiohttp import web

from billing.simulation.stripe_double import Question, StripeDouble

SLOW_SECONDS = 15
LOST = 599
"""Between here and aiohttp: never answered."""


@contextmanager
def running_stripe() -> Iterator[StripeDouble]:
    """Run a double on a free port, in a thread of its own."""
    double = StripeDouble()
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="stripe-double", daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_serve(double), loop).result(10)
    try:
        yield double
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def storm(
    events: Iterable[dict[str, Any]], *, seed: int, times: int = 3
) -> Iterator[dict[str, Any]]:
    """Return every event so many times, in an order of chance."""
    chance = random.Random(seed)
    many = [event for event in events for _ in range(times)]
    chance.shuffle(many)
    return iter(many)


async def _serve(double: StripeDouble) -> web.AppRunner:
    async def respond(request: web.Request) -> web.StreamResponse:
        form = (await request.text()) if request.method == "POST" else request.query_string
        question = Question(request.method, request.path, form, request.headers)
        reply = double.answer(question)
        if reply is None:
            return _drop(request)
        if reply.is_late:
            await asyncio.sleep(SLOW_SECONDS)
        return web.Response(body=reply.body, status=reply.status, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    double.url = f"http://127.0.0.1:{port}"
    return runner


def _drop(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response(status=LOST)
