"""Versions of what the management API edits: `ETag` on the responses to GET and PATCH, `If-Match`
on PATCH, and on PUT where a view has that instead."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from django.db import transaction
from django.utils.http import parse_etags
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from control.versions import StaleVersion, changed_fields, lock_edits, version_of

View = TypeVar("View", bound=type[Any])
Method = Callable[..., Response]
ANY = "*"
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The `ETag` of the response that the change was made from. If one of the fields "
    "that can be changed here has another value by now, nothing is saved: 409 `stale_version`, "
    "with the present values in `metadata.changed`. Without it, or with `*`, the change is made "
    "whatever happened in between.",
)
ETAG = OpenApiParameter(
    "ETag",
    str,
    OpenApiParameter.HEADER,
    response=[200],
    description="The version of the fields that PATCH changes, for `If-Match`.",
)


def versioned(changes: type[Serializer[Any]], *, part: str = "") -> Callable[[View], View]:
    """Give a view's GET and PATCH (or PUT) an `ETag`, and let the latter refuse a stale `If-Match`.

    The version is of the fields that `changes` may set, in the response or in one `part` of it.
    """

    def editable(data: Mapping[str, Any]) -> dict[str, Any]:
        values = data[part] if part else data
        fields = changes().fields.items()
        return {
            name: values[name] for name, field in fields if name in values and not field.read_only
        }

    def tagged(response: Response) -> Response:
        response.headers["ETag"] = f'"{version_of(editable(response.data))}"'
        return response

    def decorate(view: View) -> View:
        name = "patch" if hasattr(view, "patch") else "put"
        get: Method = view.get
        edit: Method = getattr(view, name)

        @wraps(get)
        def read(self: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
            return tagged(get(self, request, *args, **kwargs))

        @wraps(edit)
        def change(self: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
            stale = None
            with transaction.atomic():
                lock_edits(kwargs.get("organization_id") or ",".join(kwargs.values()))
                if is_conditional(request):
                    values = editable(get(self, request, *args, **kwargs).data)
                    stale = _mismatch(request.headers["If-Match"], values)
                if stale is None:
                    return tagged(edit(self, request, *args, **kwargs))
            raise stale  # once committed: it shows values, so what `get` records of that stays

        view.get, view.is_versioned = read, True
        setattr(view, name, change)
        return view

    return decorate


def is_conditional(request: Request) -> bool:
    """Return whether a change is made only if its `If-Match` is of the present values, so that it
    may be answered with them."""
    return bool(request.headers.get("If-Match", ANY).strip() != ANY)


def _mismatch(header: str, values: Mapping[str, Any]) -> StaleVersion | None:
    """Return the error to answer with, None if one of the header's tags is of these values.

    Proxies that compress a response mark its tag as weak, which changes nothing here.
    """
    tags = [tag.removeprefix("W/").strip('"') for tag in parse_etags(header)] or [""]
    changes = [changed_fields(tag, values) for tag in tags]
    if not all(changes):
        return None
    return StaleVersion({name: values[name] for name in changes[0]}, version_of(values))
