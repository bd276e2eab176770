"""Pages of lists in the management API."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ValidationError as BadLookup
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from control.errors import InvalidValue

SHOWN_MAX = 200
"""Characters of a rejected value that an error repeats."""


def invalid_value(name: str, value: Any, wanted: str) -> InvalidValue:
    """Return an error that names a field, its value and what was wanted."""
    return InvalidValue(f"{name} is {repr(value)[:SHOWN_MAX]}; {wanted}", param=name)


class Pagination(CursorPagination):
    """`limit` rows after the cursor `after`, in the view's `ordering`; `next` and `previous` are
    absolute URLs or null."""

    page_size = 50
    max_page_size = 200
    page_size_query_param = "limit"
    cursor_query_param = "after"
    ordering = ("-created_at", "id")

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        """Return the view's order, newest first by default."""
        ordering: tuple[str, ...] = getattr(view, "ordering", self.ordering)
        return ordering

    def get_page_size(self, request: Request) -> int:
        """Return `limit`, or the default. Raises InvalidValue."""
        sent = request.query_params.get("limit")
        if sent is None:
            return self.page_size
        if not (sent.isdecimal() and len(sent) < 4 and 1 <= int(sent) <= self.max_page_size):
            raise invalid_value("limit", sent, f"wanted 1 to {self.max_page_size}")
        return int(sent)

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> Any:
        """Return the rows of the requested page. Raises InvalidValue for an unknown cursor."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (NotFound, BadLookup, ValueError) as error:
            raise self.unknown_cursor(request) from error

    def unknown_cursor(self, request: Request) -> InvalidValue:
        """Return the error for a cursor that no page had."""
        sent = request.query_params.get(self.cursor_query_param, "")
        return invalid_value("after", sent, "wanted that of a page's `next`")

    def get_paginated_response(self, data: Any) -> Response:
        """Return one page."""
        links = {"next": self.get_next_link(), "previous": self.get_previous_link()}
        return Response({"data": data, **links})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the page's OpenAPI schema."""
        link = {"type": "string", "format": "uri", "nullable": True}
        return {
            "type": "object",
            "required": ["data", "next", "previous"],
            "properties": {"data": schema, "next": link, "previous": link},
        }


class SequencePagination(Pagination):
    """The same of a sequence, in its own order.

    A cursor holds the row that a page begins with, and its index in case that row is gone.
    """

    def key(self, row: Any) -> str:
        """Return a row's permanent key: its id, if all rows are of one table."""
        return str(row.pk)

    def paginate_queryset(  # type: ignore[override]
        self, rows: Sequence[Any], request: Request, view: object = None
    ) -> list[Any]:
        """Return the rows of the requested page. Raises InvalidValue for an unknown cursor."""
        self.url = request.build_absolute_uri()
        self.rows, self.limit = rows, self.get_page_size(request)
        self.start = self._start(request)
        return list(rows[self.start : self.start + self.limit])

    def get_next_link(self) -> str | None:
        """Return the URL of the next page; None on the last."""
        start = self.start + self.limit
        return self._link(start) if start < len(self.rows) else None

    def get_previous_link(self) -> str | None:
        """Return the URL of the previous page; None on the first."""
        return self._link(max(self.start - self.limit, 0)) if self.start else None

    def _link(self, start: int) -> str:
        position = f"{start} {self.key(self.rows[start])}"
        cursor = urlsafe_b64encode(position.encode()).decode()
        return replace_query_param(self.url, self.cursor_query_param, cursor)

    def _start(self, request: Request) -> int:
        cursor = request.query_params.get(self.cursor_query_param, "")
        if not cursor:
            return 0
        try:
            index, _, key = urlsafe_b64decode(cursor).decode().partition(" ")
            start = int(index)
        except ValueError:
            raise self.unknown_cursor(request) from None
        found = (at for at, row in enumerate(self.rows) if self.key(row) == key)
        return next(found, min(max(start, 0), len(self.rows)))
