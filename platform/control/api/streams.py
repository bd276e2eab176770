"""Files that are sent while they are read."""

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse


def streamed(
    request: HttpRequest, chunks: Iterator[bytes], *, content_type: str, name: str
) -> StreamingHttpResponse:
    """Return chunks as a file to keep. Under ASGI, Django would gather a plain iterator whole
    before it sends anything."""
    is_asgi = isinstance(request, ASGIRequest)
    return StreamingHttpResponse(
        one_by_one(chunks) if is_asgi else chunks,
        content_type=content_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def one_by_one(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield each chunk as it is made, in the thread of the request's database connection."""
    advance = sync_to_async(lambda: next(chunks, None), thread_sensitive=True)
    while (chunk := await advance()) is not None:
        yield chunk
