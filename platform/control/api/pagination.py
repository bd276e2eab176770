"""Pages of lists in the management API."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param


class Pagination(CursorPagination):
    """`limit` rows from `cursor` on; `next` and `previous` are absolute URLs or null."""

    page_size = 50
    max_page_size = 200
    page_size_query_param = "limit"
    ordering = ("-created_at", "id")

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
    """`limit` rows from `cursor` on, in the order of the list.

    A cursor holds the row that a page begins with, and its index in case that row is gone.
    """

    def key(self, row: Any) -> str:
        """Return a row's permanent key: its id, if all rows are of one table."""
        return str(row.pk)

    def paginate_queryset(  # type: ignore[override]
        self, rows: Sequence[Any], request: Request, view: object = None
    ) -> list[Any]:
        """Return the rows of the requested page. Raises NotFound for an invalid cursor."""
        self.url = request.build_absolute_uri()
        self.rows, self.limit = rows, self.get_page_size(request) or self.page_size
        self.start = self._start(request.query_params.get(self.cursor_query_param, ""))
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

    def _start(self, cursor: str) -> int:
        if not cursor:
            return 0
        try:
            index, _, key = urlsafe_b64decode(cursor).decode().partition(" ")
            start = int(index)
        except ValueError:
            raise NotFound(self.invalid_cursor_message) from None
        found = (at for at, row in enumerate(self.rows) if self.key(row) == key)
        return next(found, min(max(start, 0), len(self.rows)))
