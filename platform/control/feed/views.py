"""`GET /internal/v1/feed?after=V&lineage=L`: the changes after version V, at once or within 25 s.
One LISTEN connection per event loop wakes all long polls."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from weakref import WeakKeyDictionary

import msgspec
import psycopg
import structlog
from asgiref.sync import sync_to_async
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.views.decorators.http import require_GET

from control.db.connection import connect_apart
from control.feed.selectors import CHANGES_MAX, FeedCursor, FeedCursorExpired, FeedQuery, page_for
from control.feed.services import CHANNEL
from serving.contract.feed import FeedPage

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 3
RECONNECT_SECONDS = 1.0
WAIT_SECONDS = 25.0
POLL_SECONDS = 1.0
"""The interval at which a waiting reader checks by itself, in case a notification was lost."""


class ChangeNotifier:
    """Wakes all waiting readers whenever something is published.

    `ring_count` shows a reader whether a notification came between its query and its wait.
    """

    def __init__(self) -> None:
        self.ring_count = 0
        self.is_closed = False
        self._bell = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    async def wait(self, ring_count: int, seconds: float) -> None:
        """Return on a notification since `ring_count`, when closing, or after `seconds`."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        if self.ring_count == ring_count and not self.is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._bell.wait()

    def ring(self) -> None:
        """Wake all waiting readers."""
        self.ring_count += 1
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    def close(self) -> None:
        """Wake all waiting readers and let none wait again: the process ends."""
        self.is_closed = True
        if self._listening is not None:
            self._listening.cancel()
        self.ring()

    async def _listen(self) -> None:
        """Wake readers at each notification, forever. Without PostgreSQL readers check by
        themselves once a second, so a failure here costs time and loses nothing."""
        while True:
            try:
                await self._ring_for_notifications()
            except psycopg.OperationalError as error:
                log.warning("feed_listener_disconnected", error=type(error).__name__)
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _ring_for_notifications(self) -> None:
        async with await connect_apart(connect_timeout=CONNECT_SECONDS) as listener:
            await listener.execute(f"LISTEN {CHANNEL}")
            self.ring()  # something may have been published before LISTEN
            async for _ in listener.notifies():
                self.ring()


_notifiers: WeakKeyDictionary[asyncio.AbstractEventLoop, ChangeNotifier] = WeakKeyDictionary()


def notifier() -> ChangeNotifier:
    """Return the notifier of the running event loop."""
    return _notifiers.setdefault(asyncio.get_running_loop(), ChangeNotifier())


@require_GET
async def feed(request: HttpRequest) -> HttpResponse:
    """Respond with a page of changes, or with an empty one after the wait."""
    try:
        query = _query(request.GET)
        body = await _wait_for_changes(query, time.monotonic() + WAIT_SECONDS)
    except ValueError as error:
        return JsonResponse({"error": {"message": str(error)}}, status=400)
    except FeedCursorExpired:
        message = "This snapshot cannot be continued. Start again."
        return JsonResponse({"error": {"message": message}}, status=410)
    return HttpResponse(body, content_type="application/json")


def _query(query: QueryDict) -> FeedQuery:
    """Return the query. Raises ValueError, or FeedCursorExpired for an invalid cursor."""
    after, limit = query.get("after", ""), query.get("limit")
    kinds, cursor = query.get("kinds"), query.get("cursor")
    if not _is_number(after):
        raise ValueError("after must be a version.")
    if limit is not None and not (_is_number(limit) and int(limit) > 0):
        raise ValueError("limit must be a number of changes.")
    return FeedQuery(
        int(after),
        query.get("lineage"),
        None if kinds is None else tuple(kinds.split(",")),
        None if limit is None else min(int(limit), CHANGES_MAX),
        None if cursor is None else FeedCursor.of(cursor),
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


async def _wait_for_changes(query: FeedQuery, until: float) -> bytes:
    waiting = notifier()
    while True:
        ring_count = waiting.ring_count
        page = await read_page(query)
        left_seconds = until - time.monotonic()
        if _has_changes(page, query) or left_seconds <= 0 or waiting.is_closed:
            return msgspec.json.encode(page)
        # The new changes were of other kinds.
        query = replace(query, after=page.version)
        await waiting.wait(ring_count, min(POLL_SECONDS, left_seconds))


def _has_changes(page: FeedPage, query: FeedQuery) -> bool:
    is_snapshot = page.snapshot and (query.cursor is not None or page.version != query.after)
    return is_snapshot or bool(page.changes) or query.lineage not in (None, page.lineage)


@sync_to_async
def read_page(asked: FeedQuery) -> FeedPage:
    """Return the requested page."""
    try:
        return page_for(asked)
    finally:
        # A waiting reader must not hold a pooled connection.
        connection.close()
