"""`GET /internal/v1/feed?after=V&lineage=L`: what came after V, at once or within 25 s."""

import time

import msgspec
from asgiref.sync import sync_to_async
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_GET

from control.publish.selectors import page_after
from control.publish.waiting import room

WAIT_SECONDS = 25.0
LOOK_SECONDS = 1.0
"""How often a waiting reader looks by itself, should a notification be lost."""


@require_GET
async def feed(request: HttpRequest) -> HttpResponse:
    """Answer with a page of changes, or with an empty one when nothing came."""
    text = request.GET.get("after", "")
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        return JsonResponse({"error": {"message": "after must be a version."}}, status=400)
    lineage = request.GET.get("lineage")
    body = await _wait_for_news(int(text), lineage, time.monotonic() + WAIT_SECONDS)
    return HttpResponse(body, content_type="application/json")


async def _wait_for_news(after: int, lineage: str | None, until: float) -> bytes:
    waiting = room()
    while True:
        ring_count = waiting.ring_count
        is_news, body = await read_page(after, lineage)
        left_seconds = until - time.monotonic()
        if is_news or left_seconds <= 0 or waiting.is_closed:
            return body
        await waiting.wait(ring_count, min(LOOK_SECONDS, left_seconds))


@sync_to_async
def read_page(after: int, lineage: str | None) -> tuple[bool, bytes]:
    """Return whether the page after a version of a lineage holds any news, and its JSON."""
    try:
        page = page_after(after, lineage)
    finally:
        # A reader that waits must not hold a connection of the pool.
        connection.close()
    is_news = page.version != after or lineage not in (None, page.lineage)
    return is_news, msgspec.json.encode(page)
