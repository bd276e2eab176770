"""Downloads of customers and operators: bounded in number, holding no database connection while a
slow client reads, and as CSV free of formulas.

All limits apply to one process. A page of a file is read, and its connection given back, before
its bytes are written; `control.http_protocol` disconnects a client that stops reading.
"""

import csv
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from io import StringIO
from threading import BoundedSemaphore, Lock

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from control.api.policies import caller_of
from control.db.connection import give_back_connections
from control.error_pages import too_many_exports
from control.errors import TooManyRequests
from control.request_context import is_for_programs

CALLER_EXPORTS_MAX = 4
"""Downloads of one person or API key at once."""
ORGANIZATION_EXPORTS_MAX = 8
EXPORTS_MAX = 200
"""All downloads at once: each has a thread and a page in memory."""
READS_MAX = 5
"""Database connections that all downloads together may use, of the pool's 20."""
RETRY_AFTER_SECONDS = 10

_reads = BoundedSemaphore(READS_MAX)


class Exports:
    """Counts of the downloads in progress, by caller and organization."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._ended: deque[str] = deque()
        self._lock = Lock()

    def begin(self, caller: str, organization_id: str | None) -> Callable[[], None]:
        """Count a download, and return a function that ends it; calling it again does nothing.

        Raises TooManyRequests.
        """
        limits = {"all": EXPORTS_MAX, f"caller {caller}": CALLER_EXPORTS_MAX}
        if organization_id is not None:
            limits[f"organization {organization_id}"] = ORGANIZATION_EXPORTS_MAX
        with self._lock:
            self._settle()
            for name, limit in limits.items():
                if self._counts[name] >= limit:
                    raise _too_many_exports(name, limit)
            self._counts.update(limits.keys())
        names = list(limits)

        def end() -> None:
            # Without the lock: the garbage collector may call this in a thread that holds it.
            while names:
                self._ended.append(names.pop())

        return end

    def counts(self) -> dict[str, int]:
        """Return the counts above zero, by name."""
        with self._lock:
            self._settle()
            return dict(self._counts)

    def _settle(self) -> None:
        while self._ended:
            self._counts[self._ended.popleft()] -= 1
        self._counts = +self._counts


EXPORTS = Exports()


class _Download(HttpResponseBase):
    """A response that counts as a download until it is closed."""

    end: Callable[[], None] = staticmethod(lambda: None)

    def close(self) -> None:
        """Close the response and end the download."""
        super().close()
        self.end()

    def __del__(self) -> None:
        """End a download that was never sent because of a later failure."""
        self.end()


class _StreamedDownload(_Download, StreamingHttpResponse):
    pass


class _WholeDownload(_Download, HttpResponse):
    pass


def stream_export(
    request: HttpRequest,
    chunks: Iterator[bytes],
    *,
    content_type: str,
    name: str,
    organization_id: str | None = None,
) -> HttpResponseBase:
    """Return chunks as a file to save, each read when the one before it is written.

    `organization_id` owns the data; None for operators' files and a person's own. Raises
    TooManyRequests in the API; elsewhere the response is a 429 page.
    """

    def make() -> _Download:
        # Under ASGI, Django would collect all of a plain iterator before it sends anything.
        content = iterate(chunks) if isinstance(request, ASGIRequest) else chunks
        return _StreamedDownload(content, content_type=content_type)

    return _export(request, make, f'attachment; filename="{name}"', organization_id)


def whole_export(
    request: HttpRequest,
    content: Callable[[], bytes],
    *,
    content_type: str,
    name: str,
    organization_id: str | None = None,
    is_inline: bool = False,
) -> HttpResponseBase:
    """Return a file that `content` makes at once; otherwise like `stream_export`."""

    def make() -> _Download:
        with _reading():
            return _WholeDownload(content(), content_type=content_type)

    disposition = "inline" if is_inline else "attachment"
    return _export(request, make, f'{disposition}; filename="{name}"', organization_id)


async def iterate(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield each chunk as it is made, in the thread of the request's database connection."""

    def read() -> bytes | None:
        with _reading():
            return next(chunks, None)

    advance = sync_to_async(read, thread_sensitive=True)
    while (chunk := await advance()) is not None:
        yield chunk


class SignedAmount(str):
    """An exact amount as text, which may be below zero: no formula, whatever it begins with."""

    __slots__ = ()


def csv_bytes(rows: Iterable[Iterable[object]]) -> bytes:
    """Return lines of CSV (RFC 4180) in UTF-8; text is quoted against spreadsheet formulas."""
    file = StringIO()
    csv.writer(file).writerows([without_formula(cell) for cell in row] for row in rows)
    return file.getvalue().encode()


def without_formula(cell: object) -> object:
    """Return a cell that no spreadsheet takes for a formula; numbers are left alone."""
    is_formula = isinstance(cell, str) and cell[:1] in tuple("=+-@\t\r")
    return f"'{cell}" if is_formula and not isinstance(cell, SignedAmount) else cell


def _export(
    request: HttpRequest,
    make: Callable[[], _Download],
    disposition: str,
    organization_id: str | None,
) -> HttpResponseBase:
    try:
        end = EXPORTS.begin(caller_of(request), organization_id)
    except TooManyRequests as error:
        if is_for_programs(request):
            raise
        return too_many_exports(request, error)
    try:
        response = make()
    except BaseException:
        end()
        raise
    response.end = end
    response.headers["Content-Disposition"] = disposition
    return response


@contextmanager
def _reading() -> Iterator[None]:
    """Wait for a read slot, without holding a connection, and give the connection back after."""
    give_back_connections()
    with _reads:
        try:
            yield
        finally:
            give_back_connections()


def _too_many_exports(name: str, limit: int) -> TooManyRequests:
    subjects = {
        "all": "this server has",
        "caller": "you have",
        "organization": "your organization has",
    }
    subject = subjects[name.partition(" ")[0]]
    return TooManyRequests(
        f"Too many downloads at once: {subject} {limit} under way, as many as there may be."
        " Wait until one of them ends.",
        code="too_many_exports",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
