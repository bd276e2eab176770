"""What the management API answers to OPTIONS: what an address is for; `Allow` names the methods.
REST framework's own answer asks views for rows, which not all of them have."""

from typing import Any

from rest_framework.metadata import BaseMetadata
from rest_framework.request import Request


class Metadata(BaseMetadata):
    """Names and describes a view; the OpenAPI document says the rest."""

    def determine_metadata(self, request: Request, view: Any) -> dict[str, Any]:
        """Return the view's name and description."""
        return {"name": view.get_view_name(), "description": view.get_view_description()}
