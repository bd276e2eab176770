"""Relays the gateway's stream to the page as it arrives, followed by the cost.

The page gets the gateway's own `data:` lines and our named events: first `opened` (the request's
id), last `receipt` or `failure`. When the browser disconnects, the generator is closed, which
closes the call to the gateway and so aborts the engine's work.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from serving.contract.price import PriceBand
from web.console.playground.errors import playground_error, playground_error_from
from web.console.playground.usage import AnswerTimer, PlaygroundChunk, figures_of, shown

TIMEOUT = aiohttp.ClientTimeout(total=600, sock_connect=3, sock_read=120)
# A key created for this call reaches the gateways through the change feed within a second.
KEY_TRIES = 6
KEY_PAUSE_SECONDS = 0.4
DATA = b"data:"
DONE = b"[DONE]"


class PlaygroundRun(msgspec.Struct, frozen=True):
    """One call for a member: URLs, API key, body and prices."""

    url: str
    receipts_url: str
    secret: str
    body: dict[str, Any]
    schedule: Sequence[PriceBand]


def event(name: str, record: msgspec.Struct | dict[str, Any]) -> bytes:
    """Return one named server-sent event."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(record) + b"\n\n"


async def relay(run: PlaygroundRun) -> AsyncIterator[bytes]:
    """Make the call and yield server-sent events; a failure of the gateway is an event too."""
    try:
        async with stream_request(run) as (response, timer):
            async for piece in pieces(response, timer, run):
                yield piece
    except TimeoutError:
        yield event("failure", playground_error("timeout"))
    except aiohttp.ClientError:
        yield event("failure", playground_error("unreachable"))


@asynccontextmanager
async def stream_request(
    run: PlaygroundRun,
) -> AsyncIterator[tuple[aiohttp.ClientResponse, AnswerTimer]]:
    """Open the call and yield its response and timer; retry while the gateway lacks the key."""
    headers = {"authorization": f"Bearer {run.secret}"}
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers=headers) as session:
        for attempts_left in reversed(range(KEY_TRIES)):
            timer = AnswerTimer(time.monotonic)
            async with session.post(run.url, json=run.body) as response:
                if response.status != 401 or not attempts_left:
                    yield response, timer
                    return
            await asyncio.sleep(KEY_PAUSE_SECONDS)


async def pieces(
    response: aiohttp.ClientResponse, timer: AnswerTimer, run: PlaygroundRun
) -> AsyncIterator[bytes]:
    """Yield the page's events of a response of the gateway."""
    if response.status != 200:
        yield event("failure", playground_error_from(await response.read()))
        return
    request_id = response.headers.get("x-request-id", "")
    yield event("opened", {"receipt_url": run.receipts_url + request_id})
    async for line in response.content:
        data = line.removeprefix(DATA).strip()
        if not line.startswith(DATA) or data == DONE:
            continue
        if b'"error"' in data and (chunk_error := error_in(data)):
            yield event("failure", chunk_error)
            return
        timer.note(msgspec.json.decode(data, type=PlaygroundChunk))
        yield DATA + b" " + data + b"\n\n"
    receipt = figures_of(timer, run.schedule)
    yield (
        event("receipt", shown(receipt))
        if receipt
        else event("failure", playground_error("cut_off"))
    )


def error_in(data: bytes) -> msgspec.Struct | None:
    """Return the error of a chunk; None if "error" is only part of its text."""
    record = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    return playground_error_from(data) if "error" in record else None
