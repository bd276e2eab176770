"""`GET /internal/v1/feed?after=V&lineage=L`: what came after V, at once or within 25 s."""

import time
from dataclasses import replace

import msgspec
from asgiref.sync import sync_to_async
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.views.decorators.http import require_GET

from control.publish.cursor import Cursor, SnapshotGone
from control.publish.selectors import CHANGES_MAX, Asked, page_for
from control.publish.waiting import room
from serving.contract.feed import Page

WAIT_SECONDS = 25.0
LOOK_SECONDS = 1.0
"""How often a waiting reader looks by itself, should a notification be lost."""


@require_GET
async def feed(request: HttpRequest) -> HttpResponse:
    """Answer with a page of changes, or with an empty one when nothing came."""
    try:
        asked = _asked(request.GET)
        body = await _wait_for_news(asked, time.monotonic() + WAIT_SECONDS)
    except ValueError as error:
        return JsonResponse({"error": {"message": str(error)}}, status=400)
    except SnapshotGone:
        message = "This snapshot cannot be gone on with: begin again."
        return JsonResponse({"error": {"message": message}}, status=410)
    return HttpResponse(body, content_type="application/json")


def _asked(query: QueryDict) -> Asked:
    """Return what is asked for. Raises ValueError, and SnapshotGone for an odd cursor."""
    after, limit = query.get("after", ""), query.get("limit")
    kinds, cursor = query.get("kinds"), query.get("cursor")
    if not _is_number(after):
        raise ValueError("after must be a version.")
    if limit is not None and not (_is_number(limit) and int(limit) > 0):
        raise ValueError("limit must be a number of changes.")
    return Asked(
        int(after),
        query.get("lineage"),
        None if kinds is None else tuple(kinds.split(",")),
        None if limit is None else min(int(limit), CHANGES_MAX),
        None if cursor is None else Cursor.of(cursor),
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


async def _wait_for_news(asked: Asked, until: float) -> bytes:
    waiting = room()
    while True:
        ring_count = waiting.ring_count
        page = await read_page(asked)
        left_seconds = until - time.monotonic()
        if _is_news(page, asked) or left_seconds <= 0 or waiting.is_closed:
            return msgspec.json.encode(page)
        # What came was of kinds that nobody asked for.
        asked = replace(asked, after=page.version)
        await waiting.wait(ring_count, min(LOOK_SECONDS, left_seconds))


def _is_news(page: Page, asked: Asked) -> bool:
    is_another = page.snapshot and (asked.cursor is not None or page.version != asked.after)
    return is_another or bool(page.changes) or asked.lineage not in (None, page.lineage)


@sync_to_async
def read_page(asked: Asked) -> Page:
    """Return the page that was asked for."""
    try:
        return page_for(asked)
    finally:
        # A reader that waits must not hold a connection of the pool.
        connection.close()
