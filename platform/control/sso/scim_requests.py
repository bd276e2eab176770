"""Parse SCIM requests with `scim2-models`, after normalizing forms that differ from the
standard."""

import json
import re
from typing import Any

from django.http import HttpRequest
from scim2_models import (
    Context,
    InvalidFilterException,
    InvalidSyntaxException,
    InvalidValueException,
    PatchOp,
    Resource,
)

from control.sso.scim_resources import WRITABLE

CHOSEN = re.compile(r'(?P<attribute>\w+)\[\s*(?P<by>\w+)\s+eq\s+(?P<value>"[^"\\]*")\s*\]', re.I)
"""`members[value eq "scu_…"]`"""
EQUAL = re.compile(r'\s*(?P<attribute>[\w.:]+)\s+eq\s+(?P<value>"(?:[^"\\]|\\.)*")\s*', re.I)
"""`userName eq "ada@acme.com"`"""

PARTS = {"name": {"givenname", "familyname"}, "members": {"value"}}
"""The sub-attributes that we store, in lower case."""


def body(request: HttpRequest) -> dict[str, Any]:
    """Return the JSON object of a request, without NUL characters and lone surrogates, which
    PostgreSQL rejects.

    Raises InvalidSyntaxException.
    """
    try:
        parsed = json.loads(request.body)
        text = json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidSyntaxException(detail="The body is no JSON.") from error
    if rb"\u0000" in text:
        raise InvalidSyntaxException(detail="The body holds a NUL character.")
    if not isinstance(parsed, dict):
        raise InvalidSyntaxException(detail="The body is no JSON object.")
    return parsed


def resource(request: HttpRequest, model: type[Resource[Any]], context: Context) -> Any:
    """Return the resource in a request, without the attributes that we do not store."""
    attributes = _kept(model, body(request))
    return model.model_validate({**attributes, "schemas": [model.__schema__]}, scim_ctx=context)


def patched(request: HttpRequest, current: Resource[Any]) -> None:
    """Apply a PATCH request to a resource. Raises SCIMException."""
    model = type(current)
    sent = body(request)
    lowered = {key.lower(): value for key, value in sent.items()}
    operations = lowered.get("operations")
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise InvalidSyntaxException(detail="Operations is no list of objects.")
    normalized = [one for each in operations for one in _normalized(model, each)]
    if operations and not normalized:
        return
    message = {"schemas": sent.get("schemas"), "Operations": normalized}
    operation = PatchOp[model].model_validate(  # type: ignore[valid-type]
        message, scim_ctx=Context.RESOURCE_PATCH_REQUEST
    )
    operation.patch(current)


def equality(request: HttpRequest, columns: dict[str, str]) -> dict[str, str]:
    """Return the filter of a request, by the lookup of `columns` for its attribute.

    Raises InvalidFilterException for any but `attribute eq "value"`.
    """
    expression = request.GET.get("filter")
    if expression is None:
        return {}
    match = EQUAL.fullmatch(expression)
    column = columns.get(match["attribute"].rpartition(":")[2].lower()) if match else None
    if match is None or column is None:
        raise InvalidFilterException(detail=f'Wanted one of {", ".join(columns)} eq "…".')
    try:
        value = json.loads(match["value"])
    except ValueError as error:
        raise InvalidFilterException(detail="The value is no string.") from error
    if not str(value).isprintable():
        raise InvalidFilterException(detail="The value has characters that no name has.")
    return {column: str(value)}


def _kept(model: type[Resource[Any]], sent: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _value(key, value)
        for key, value in sent.items()
        if _is_kept(model, key) and value is not None
    }


def _is_kept(model: type[Resource[Any]], path: str) -> bool:
    """Return whether a path names an attribute of the resource's own schema that we store."""
    schema, _, name = path.rpartition(":")
    if schema and schema.lower() != str(model.__schema__).lower():
        return False
    first, _, part = name.partition(".")
    is_part = not part or part.lower() in PARTS.get(first.lower(), ())
    return re.split(r"\[", first)[0].lower() in WRITABLE[model] and is_part


def _value(path: str, value: Any) -> Any:
    """Return a value without the sub-attributes that we do not store."""
    parts = PARTS.get(path.rpartition(":")[2].lower())
    if parts is None or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        return [_value(path, each) for each in value]
    return {key: each for key, each in value.items() if key.lower() in parts}


def _normalized(model: type[Resource[Any]], sent: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an operation as `scim2-models` accepts it: one per attribute that we store, and one
    per value to remove from a list."""
    operation = {key.lower(): value for key, value in sent.items()}
    verb, path, value = (operation.get(key) for key in ("op", "path", "value"))
    verb = str(verb).lower()
    if not path:
        if verb == "remove" or not isinstance(value, dict):
            return [{**operation, "op": verb}]
        by_name = ({"op": verb, "path": name, "value": each} for name, each in value.items())
        return [one for each in by_name for one in _normalized(model, each)]
    if not isinstance(path, str) or not _is_kept(model, path):
        return []
    name = path.rpartition(":")[2]
    selection = CHOSEN.fullmatch(name)
    if selection is not None:
        if verb != "remove":
            raise InvalidValueException(detail="Values of a list are added or removed as a whole.")
        name = selection["attribute"]
        value = [{selection["by"]: json.loads(selection["value"])}]
    if verb == "remove" and isinstance(value, list):
        return [{"op": verb, "path": name, "value": _value(name, each)} for each in value]
    if verb == "replace" and value is None:
        raise InvalidValueException(detail=f"{name} is replaced by nothing.")
    return [{"op": verb, "path": name, "value": _value(name, value)}]
