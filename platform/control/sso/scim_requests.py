"""What a provider's request says, read with `scim2-models`; and what providers say differently from
the standard, brought into its form first."""

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
"""What is kept of a value, in lower case."""


def body(request: HttpRequest) -> dict[str, Any]:
    """Return the JSON object of a request, whose texts the database can hold.

    Raises InvalidSyntaxException.
    """
    try:
        found = json.loads(request.body)
        text = json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidSyntaxException(detail="The body is no JSON.") from error
    if rb"\u0000" in text:
        raise InvalidSyntaxException(detail="The body holds a NUL character.")
    if not isinstance(found, dict):
        raise InvalidSyntaxException(detail="The body is no JSON object.")
    return found


def resource(request: HttpRequest, model: type[Resource[Any]], context: Context) -> Any:
    """Return the resource that a request holds; attributes that we do not keep are left aside."""
    found = _kept(model, body(request))
    return model.model_validate({**found, "schemas": [model.__schema__]}, scim_ctx=context)


def patched(request: HttpRequest, current: Resource[Any]) -> None:
    """Change a resource as a PATCH request says. Raises SCIMException."""
    model = type(current)
    sent = body(request)
    lowered = {key.lower(): value for key, value in sent.items()}
    operations = lowered.get("operations")
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise InvalidSyntaxException(detail="Operations is no list of objects.")
    usual = [one for each in operations for one in _usual(model, each)]
    if operations and not usual:
        return
    message = {"schemas": sent.get("schemas"), "Operations": usual}
    operation = PatchOp[model].model_validate(  # type: ignore[valid-type]
        message, scim_ctx=Context.RESOURCE_PATCH_REQUEST
    )
    operation.patch(current)


def equality(request: HttpRequest, columns: dict[str, str]) -> dict[str, str]:
    """Return the filter of a request as the columns of our tables have it.

    Raises InvalidFilterException for any but `attribute eq "value"`.
    """
    asked = request.GET.get("filter")
    if asked is None:
        return {}
    found = EQUAL.fullmatch(asked)
    column = columns.get(found["attribute"].rpartition(":")[2].lower()) if found else None
    if found is None or column is None:
        raise InvalidFilterException(detail=f'Wanted one of {", ".join(columns)} eq "…".')
    try:
        value = json.loads(found["value"])
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
    """Tell whether a path leads to what we keep of the resource's own schema."""
    schema, _, name = path.rpartition(":")
    if schema and schema.lower() != str(model.__schema__).lower():
        return False
    first, _, part = name.partition(".")
    is_part = not part or part.lower() in PARTS.get(first.lower(), ())
    return re.split(r"\[", first)[0].lower() in WRITABLE[model] and is_part


def _value(path: str, value: Any) -> Any:
    """Return a value without the parts that we do not keep."""
    parts = PARTS.get(path.rpartition(":")[2].lower())
    if parts is None or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        return [_value(path, each) for each in value]
    return {key: each for key, each in value.items() if key.lower() in parts}


def _usual(model: type[Resource[Any]], sent: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an operation as `scim2-models` takes it: by attribute, none for what we do not keep,
    one for each value of a list to remove."""
    operation = {key.lower(): value for key, value in sent.items()}
    verb, path, value = (operation.get(key) for key in ("op", "path", "value"))
    verb = str(verb).lower()
    if not path:
        if verb == "remove" or not isinstance(value, dict):
            return [{**operation, "op": verb}]
        by_name = ({"op": verb, "path": name, "value": each} for name, each in value.items())
        return [one for each in by_name for one in _usual(model, each)]
    if not isinstance(path, str) or not _is_kept(model, path):
        return []
    name = path.rpartition(":")[2]
    chosen = CHOSEN.fullmatch(name)
    if chosen is not None:
        if verb != "remove":
            raise InvalidValueException(detail="Values of a list are added or removed as a whole.")
        name, value = chosen["attribute"], [{chosen["by"]: json.loads(chosen["value"])}]
    if verb == "remove" and isinstance(value, list):
        return [{"op": verb, "path": name, "value": _value(name, each)} for each in value]
    if verb == "replace" and value is None:
        raise InvalidValueException(detail=f"{name} is replaced by nothing.")
    return [{"op": verb, "path": name, "value": _value(name, value)}]
