"""`/healthz` and `/readyz` of both listeners, answered before Django: neither a page that hangs nor
the name that a probe calls us by holds them up."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from control.http.requests import REQUEST_ID
from control.ids import new_id
from control.watch.readiness import Checks, is_ready

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]
Check = Callable[[], Awaitable[Checks]]

ANSWER_SECONDS = 2.0
"""A check that takes longer has failed."""
NOT_KNOWN: Checks = {}


class Health:
    """Asks one question at a time: one that hangs is left to end by itself, and the answer to
    whoever asks meanwhile is no."""

    def __init__(self, check: Check, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._check = check
        self._answer_seconds = answer_seconds
        self._asking: asyncio.Task[Checks] | None = None

    async def ask(self) -> Checks:
        """Return what holds; nothing where no answer comes in time."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._checked())
        await asyncio.wait({self._asking}, timeout=self._answer_seconds)
        return self._asking.result() if self._asking.done() else NOT_KNOWN

    async def _checked(self) -> Checks:
        return await self._check()


def telling_health(application: Application, health: Health, *, is_public: bool) -> Application:
    """Return the application with the two addresses. The public ones say yes or no, no more."""

    async def respond(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if path == "/healthz":
            await answer(send, 200, b"ok\n")
        elif path == "/readyz":
            checks = await health.ask()
            status = 200 if is_ready(checks) else 503
            await answer(send, status, _words(checks, status, is_public))
        else:
            await application(scope, receive, send)

    return respond


async def answer(send: Send, status: int, body: bytes) -> None:
    """Answer with a few words that nobody keeps."""
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (REQUEST_ID.encode(), new_id("req").encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _words(checks: Checks, status: int, is_public: bool) -> bytes:
    if is_public:
        return b"ready\n" if status == 200 else b"not ready\n"
    return json.dumps(checks or {"answered_in_time": False}).encode() + b"\n"
