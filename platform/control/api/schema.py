"""The OpenAPI description of the management API's operations."""

from typing import Any

from drf_spectacular.openapi import AutoSchema

from control.api.idempotency import PARAMETER
from control.api.serializers import ClosedSerializer, ErrorBodySerializer
from control.api.versions import ETAG, IF_MATCH

PREFIX = "/api/v1/"
VERBS = {
    "GET": "retrieve",
    "POST": "create",
    "PUT": "replace",
    "PATCH": "update",
    "DELETE": "delete",
}
LIST = "_list"
"""Suffix of the ids of operations that return a page of rows."""
REFUSALS = {
    "400": "Something of what was sent is wrong; `param` names it where it has a name.",
    "401": "Nobody is signed in, or the API key is not valid.",
    "403": "The role, the scope or the state of the organization does not allow it.",
    "404": "There is no such thing for this caller.",
    "406": "No such form of answer.",
    "409": "The state of things does not allow it.",
    "413": "The body is too large.",
    "415": "The body is of another kind than JSON.",
    "429": "Too many calls; `Retry-After` says in how many seconds the next is answered.",
    "503": "The service is unavailable for a moment; `Retry-After` says for how long.",
}
OF_BODIES = ("409", "413", "415")
"""Errors about a request's body: GET never returns them."""


class Schema(AutoSchema):
    """Describes one operation."""

    _is_unnamed = False

    def get_override_parameters(self) -> list[Any]:
        """Return the parameters that every POST takes, and those of versioned views."""
        if self.method == "POST":
            return [PARAMETER]
        if not getattr(self.view, "is_versioned", False):
            return []
        of_edits = [IF_MATCH, ETAG]
        return {"GET": [ETAG], "PATCH": of_edits, "PUT": of_edits}.get(self.method, [])

    def get_operation_id(self) -> str:
        """Return an id derived from the URL, for views that set none themselves: the nouns and
        what happens to the last of them, such as `api_keys_create` and `api_keys_revoke`."""
        self._is_unnamed = True
        parts = self.path.removeprefix(PREFIX).strip("/").split("/")
        if parts[0] == "organizations" and len(parts) > 2:
            parts = parts[2:]
        words = [part.replace("-", "_") for part in parts if not part.startswith("{")]
        is_action = self.method == "POST" and len(parts) > 1 and parts[-2].startswith("{")
        return "_".join(words if is_action else [*words, VERBS[self.method]])

    def _is_list_view(self, serializer: Any = None) -> bool:
        """Return whether the id that the view set ends in `_list`: each view has one URL."""
        return not self._is_unnamed and self.get_operation_id().endswith(LIST)

    def _map_basic_serializer(self, serializer: Any, direction: Any) -> Any:
        """Declare that a request body takes no unknown fields."""
        schema = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        if direction == "request" and isinstance(serializer, ClosedSerializer):
            schema["additionalProperties"] = False
        return schema

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        """Return the responses that the view declares, and the errors of every operation."""
        responses: dict[str, Any] = super()._get_response_bodies(direction)
        body = self.resolve_serializer(ErrorBodySerializer, "response").ref
        content = {"application/json": {"schema": body}}
        for status, words in REFUSALS.items():
            if self.method != "GET" or status not in OF_BODIES:
                responses.setdefault(status, {"description": words, "content": content})
        return responses
