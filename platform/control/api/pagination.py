"""Lists come in pages that stay right while rows are added."""

from typing import Any

from rest_framework.pagination import CursorPagination
from rest_framework.response import Response


class Pagination(CursorPagination):
    """`limit` rows from `cursor` on; `next` and `previous` are whole addresses or null."""

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
