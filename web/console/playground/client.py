"""Passes the gateway's stream on to the page as it comes, then says what it cost.

The page gets the gateway's own `data:` lines between three named events of ours: `opened`
(the request's id), then `receipt` or `failure`. When the browser leaves, the generator is
closed, which closes the call to the gateway, which aborts the engine's work.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from serving.contract.price import Band
from web.console.playground.errors import playground_error, playground_error_from
from web.console.playground.usage import AnswerTimer, PlaygroundChunk, figures_of, shown

TIMEOUT = aiohttp.ClientTimeout(total=600, sock_connect=3, sock_read=120)
# A key minted for this very call reaches the gateways with the change feed, within a second.
KEY_TRIES = 6
KEY_PAUSE_SECONDS = 0.4
DATA = b"data:"
DONE = b"[DONE]"


class PlaygroundRun(msgspec.Struct, frozen=True):
    """One call to make for a member: where, with which secret, what, at which prices."""

    url: str
    receipts_url: str
    secret: str
    body: dict[str, Any]
    schedule: Sequence[Band]


def event(name: str, record: msgspec.Struct | dict[str, Any]) -> bytes:
    """Return one named server-sent event."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(record) + b"\n\n"


async def relay(errand: PlaygroundRun) -> AsyncIterator[bytes]:
    """Make the call and yield its server-sent events; never raises for the gateway's failures."""
    try:
        async with stream_request(errand) as (reply, watch):
            async for piece in pieces(reply, watch, errand):
                yield piece
    except TimeoutError:
        yield event("failure", playground_error("timeout"))
    except aiohttp.ClientError:
        yield event("failure", playground_error("unreachable"))


@asynccontextmanager
async def stream_request(
    errand: PlaygroundRun,
) -> AsyncIterator[tuple[aiohttp.ClientResponse, AnswerTimer]]:
    """Open the call, trying again only while the gateway has yet to hear of the key; yield the
    answer and the watch that was started with it."""
    headers = {"authorization": f"Bearer {errand.secret}"}
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers=headers) as session:
        for left in reversed(range(KEY_TRIES)):
            watch = AnswerTimer(time.monotonic)
            async with session.post(errand.url, json=errand.body) as reply:
                if reply.status != 401 or not left:
                    yield reply, watch
                    return
            await asyncio.sleep(KEY_PAUSE_SECONDS)


async def pieces(
    reply: aiohttp.ClientResponse, watch: AnswerTimer, errand: PlaygroundRun
) -> AsyncIterator[bytes]:
    """Yield what the page should see of one answer of the gateway."""
    if reply.status != 200:
        yield event("failure", playground_error_from(await reply.read()))
        return
    request_id = reply.headers.get("x-request-id", "")
    yield event("opened", {"receipt_url": errand.receipts_url + request_id})
    async for line in reply.content:
        data = line.removeprefix(DATA).strip()
        if not line.startswith(DATA) or data == DONE:
            continue
        if b'"error"' in data and (chunk_error := error_in(data)):
            yield event("failure", chunk_error)
            return
        watch.note(msgspec.json.decode(data, type=PlaygroundChunk))
        yield DATA + b" " + data + b"\n\n"
    receipt = figures_of(watch, errand.schedule)
    yield (
        event("receipt", shown(receipt))
        if receipt
        else event("failure", playground_error("cut_off"))
    )


def error_in(data: bytes) -> msgspec.Struct | None:
    """Return the failure that a chunk reports, if it is an error and no text with that word."""
    record = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    return playground_error_from(data) if "error" in record else None
