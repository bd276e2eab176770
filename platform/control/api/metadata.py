"""The management API's response to OPTIONS: what a URL is for; `Allow` lists its methods.

REST framework's own response needs a queryset, which not all views have.
"""

from typing import Any

from rest_framework.metadata import BaseMetadata
from rest_framework.request import Request


class Metadata(BaseMetadata):
    """Name and description of a view; the OpenAPI document has the rest."""

    def determine_metadata(self, request: Request, view: Any) -> dict[str, Any]:
        """Return the view's name and description."""
        return {"name": view.get_view_name(), "description": view.get_view_description()}
