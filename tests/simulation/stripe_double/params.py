"""Checking a request's parameters against stripe-python's own types, and typing them."""

import re
import types
from functools import cache
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from stripe import RequestOptions, _request_options
from stripe._stripe_object import UntypedStripeObject
from typing_extensions import is_typeddict

from tests.simulation.stripe_double.errors import ApiError

PART = re.compile(r"\[([^\]]*)\]")
OF_THE_CALL = frozenset(RequestOptions.__annotations__)
"""What every type of stripe-python carries and no body may."""


def decoded(form: str) -> dict[str, Any]:
    """Return `a[b][0]=c` as nested dictionaries."""
    found: dict[str, Any] = {}
    for name, value in parse_qsl(form, keep_blank_values=True):
        head = name.partition("[")[0]
        at, parts = found, [head, *PART.findall(name)]
        for part in parts[:-1]:
            at = at.setdefault(part, {})
        at[parts[-1] or str(len(at))] = value
    return found


def checked(given: dict[str, Any], kind: type) -> dict[str, Any]:
    """Return the parameters with their types. Raises ApiError as Stripe would."""
    return _record(given, kind, "")


@cache
def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    """Return a TypedDict's fields, and whether each must be there."""
    found = {}
    known = vars(_request_options) | {"StripeContext": object}
    hints = get_type_hints(kind, localns=known, include_extras=True)
    for name, hint in hints.items():
        if name not in OF_THE_CALL:
            is_marked = get_origin(hint) in (NotRequired, Required)
            inner = get_args(hint)[0] if is_marked else hint
            found[name] = inner, get_origin(hint) is NotRequired
    return found


def _record(value: Any, kind: type, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ApiError(400, f"Invalid object: {path}", param=path)
    fields = _fields(kind)
    for name in value:
        if name not in fields:
            where = f"{path}[{name}]" if path else name
            message = f"Received unknown parameter: {where}"
            raise ApiError(400, message, code="parameter_unknown", param=where)
    for name, (_, is_optional) in fields.items():
        if not is_optional and name not in value:
            where = f"{path}[{name}]" if path else name
            message = f"Missing required param: {where}."
            raise ApiError(400, message, code="parameter_missing", param=where)
    return {
        name: _typed(each, fields[name][0], f"{path}[{name}]" if path else name)
        for name, each in value.items()
    }


def _typed(value: Any, hint: Any, path: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _one_of(value, get_args(hint), path)
    if origin is Literal:
        return _chosen(value, get_args(hint), path)
    if origin is list:
        return _listed(value, get_args(hint)[0], path)
    if origin is dict:
        return _mapped(value, get_args(hint)[1], path)
    return _record(value, hint, path) if is_typeddict(hint) else _plain(value, hint, path)


def _chosen(value: Any, choices: tuple[Any, ...], path: str) -> Any:
    if value in choices:
        return value
    message = f"Invalid {path}: must be one of {', '.join(map(str, choices))}"
    raise ApiError(400, message, param=path)


def _mapped(value: Any, hint: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ApiError(400, f"Invalid object: {path}", param=path)
    return {name: _typed(each, hint, f"{path}[{name}]") for name, each in value.items()}


def _one_of(value: Any, hints: tuple[Any, ...], path: str) -> Any:
    problem: ApiError | None = None
    for hint in sorted(hints, key=lambda each: each is str):  # text fits anything: last
        if get_origin(hint) is UntypedStripeObject or hint is UntypedStripeObject:
            continue
        try:
            return _typed(value, hint, path)
        except ApiError as error:
            problem = error
    raise problem or ApiError(400, f"Invalid {path}", param=path)


def _listed(value: Any, hint: Any, path: str) -> list[Any]:
    if not isinstance(value, dict) or not all(name.isdecimal() for name in value):
        raise ApiError(400, f"Invalid array: {path}", param=path)
    ordered = sorted(value.items(), key=lambda item: int(item[0]))
    return [_typed(each, hint, f"{path}[{name}]") for name, each in ordered]


def _plain(value: Any, hint: Any, path: str) -> Any:
    if hint is Any:
        return value
    if not isinstance(value, str):
        raise ApiError(400, f"Invalid string: {path}", param=path)
    if hint is int:
        if not re.fullmatch(r"-?\d+", value):
            message = f"Invalid integer: {value}"
            raise ApiError(400, message, code="parameter_invalid_integer", param=path)
        return int(value)
    if hint is bool:
        if value not in ("true", "false"):
            raise ApiError(400, f"Invalid boolean: {value}", param=path)
        return value == "true"
    return value
