"""What a field may hold, in words, and what was sent in its place: for errors that say both."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.inspect import (
    BoolType,
    DictType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
)

VALUE_CHARACTERS_MAX = 60
WANTED_CHARACTERS_MAX = 400
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<place>\d+)\]|(?P<any>\[\.\.\.\])")


class Expectation(NamedTuple):
    """What a field may hold; `shown` is what was sent, nothing where that cannot be told."""

    wanted: str
    shown: str


def expected_at(kind: Type, path: str, body: Any) -> Expectation:
    """Return what a type wants at a path such as `.messages[0].role`, and what a body has there."""
    types, value, is_known = [kind], body, body is not msgspec.UNSET
    for step in _STEP.finditer(path):
        key: Any = step["field"] or (int(step["place"]) if step["place"] else None)
        types = [inner for one in _plain(types) for inner in _inner(one, key, value)]
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            value, is_known = None, False
    wanted = " or ".join(dict.fromkeys(_words(types)))[:WANTED_CHARACTERS_MAX] or "null"
    return Expectation(wanted, shown(value) if is_known else "")


def shown(value: Any) -> str:
    """Return a value as an error tells it: short, and of a long one what it is."""
    if isinstance(value, str | list | dict) and not value:
        return f"an empty {'text' if value == '' else 'list' if value == [] else 'object'}"
    if isinstance(value, str):
        cut = value[:VALUE_CHARACTERS_MAX]
        return f"'{cut}'" if cut == value else f"'{cut}…' ({len(value)} characters)"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "an object" if isinstance(value, dict) else msgspec.json.encode(value).decode()


def _plain(types: list[Type]) -> Iterator[Type]:
    """Yield types without what only wraps them."""
    for one in types:
        if isinstance(one, UnionType):
            yield from _plain(list(one.types))
        elif isinstance(one, Metadata):
            yield from _plain([one.type])
        else:
            yield one


def _inner(kind: Type, key: Any, value: Any) -> Iterator[Type]:
    """Yield what a type has under a key; which of several tagged types it is, the value tells."""
    if isinstance(kind, StructType):
        if kind.tag_field is not None and key == kind.tag_field:
            yield LiteralType((kind.tag,))
        elif kind.tag_field is None or _has_tag(value, kind):
            yield from (field.type for field in kind.fields if field.encode_name == key)
    elif isinstance(kind, ListType):
        yield kind.item_type
    elif isinstance(kind, DictType):
        yield kind.value_type


def _has_tag(value: Any, kind: StructType) -> bool:
    return isinstance(value, dict) and value.get(kind.tag_field) == kind.tag


def _words(types: list[Type]) -> Iterator[str]:
    plain = list(_plain(types))
    literals = [value for one in plain if isinstance(one, LiteralType) for value in one.values]
    if literals:
        one_of = "one of " if len(literals) > 1 else ""
        yield one_of + ", ".join(f"{shown(value)}" for value in literals)
    for one in plain:
        if isinstance(one, BoolType):
            yield "true or false"
        elif isinstance(one, IntType):
            yield "an integer" + _range(one.ge, one.le, one.gt)
        elif isinstance(one, FloatType):
            yield "a number" + _range(one.ge, one.le, one.gt)
        elif isinstance(one, StrType):
            pattern = f" that matches {one.pattern}" if one.pattern else ""
            yield "a text" + _size(one.min_length, one.max_length, "characters") + pattern
        elif isinstance(one, ListType):
            yield "a list" + _size(one.min_length, one.max_length, "items")
        elif isinstance(one, DictType):
            yield "an object" + _size(one.min_length, one.max_length, "fields")
        elif isinstance(one, StructType):
            yield "an object"
        elif not isinstance(one, LiteralType | NoneType):
            yield "any value"


def _range(least: float | None, most: float | None, above: float | None) -> str:
    low = "" if least is None else _number(least)
    low = low if above is None else f"above {_number(above)}"
    high = "" if most is None else _number(most)
    if low and high:
        return f" from {low} to {high}" if above is None else f" {low}, at most {high}"
    return f" of at least {low}" if low else f" of at most {high}" if high else ""


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 10**6 else str(value)


def _size(least: int | None, most: int | None, of: str) -> str:
    if least and most:
        return f" of {least} to {most} {of}"
    if least:
        return f" of at least {least} {of.removesuffix('s') if least == 1 else of}"
    return f" of at most {most} {of}" if most is not None else ""
