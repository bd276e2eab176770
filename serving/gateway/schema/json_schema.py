"""JSON Schemas from clients: small, plain and finite, or an engine compiles them for hours."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from serving.gateway.schema.decode import invalid

Schema = dict[str, Any]

DEPTH_MAX = 16
NODES_MAX = 2_000
BYTES_MAX = 64 * 1024
PATTERN_CHARACTERS_MAX = 1_000
COUNT_MAX = 4_096
TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
LISTS = ("enum", "anyOf", "oneOf", "allOf")
FOREIGN = ("$dynamicRef", "$recursiveRef")


def check_schema(schema: Schema, param: str) -> None:
    """Raise BadRequest naming `param` unless the schema is one we let an engine compile."""
    if len(msgspec.json.encode(schema)) > BYTES_MAX:
        raise invalid(param, f"the schema is larger than {BYTES_MAX} bytes")
    for count, (depth, node) in enumerate(_walk(schema)):
        if depth > DEPTH_MAX:
            raise invalid(param, f"the schema is nested deeper than {DEPTH_MAX} levels")
        if count >= NODES_MAX:
            raise invalid(param, f"the schema has more than {NODES_MAX} nodes")
        if isinstance(node, dict):
            _check_keywords(node, param)
    _check_references(schema, param)


def _walk(root: Any) -> Iterator[tuple[int, Any]]:
    """Yield every value with its depth; without recursion, since depth is what is in doubt."""
    waiting = [(1, root)]
    while waiting:
        depth, node = waiting.pop()
        yield depth, node
        if isinstance(node, dict):
            waiting.extend((depth + 1, value) for value in node.values())
        elif isinstance(node, list):
            waiting.extend((depth + 1, value) for value in node)


def _check_keywords(node: Schema, param: str) -> None:
    """Check the keywords that are known to hurt. A property may bear a keyword's name: its
    value is a schema then, not a count, a list or a text."""
    kind = node.get("type")
    named = kind if isinstance(kind, list) else [kind] if isinstance(kind, str) else []
    if not all(isinstance(name, str) and name in TYPES for name in named):
        raise invalid(param, "'type' is not a JSON Schema type")
    for name in LISTS:
        if node.get(name) == []:
            raise invalid(param, f"'{name}' is empty")
    for name in COUNTS:
        count = node.get(name)
        if isinstance(count, int | float) and not 0 <= count <= COUNT_MAX:
            raise invalid(param, f"'{name}' is not within 0 to {COUNT_MAX}")
    pattern = node.get("pattern")
    if isinstance(pattern, str):
        _check_pattern(pattern, param)
    if any(name in node for name in FOREIGN):
        raise invalid(param, "dynamic references are not supported")


def _check_pattern(pattern: str, param: str) -> None:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise invalid(param, f"a pattern is longer than {PATTERN_CHARACTERS_MAX} characters")
    if any(int(count) > COUNT_MAX for count in re.findall(r"[{,](\d{1,9})", pattern)):
        raise invalid(param, f"a pattern repeats more than {COUNT_MAX} times")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise invalid(param, "a pattern is not a regular expression") from None


def _check_references(schema: Schema, param: str) -> None:
    """Refuse references that leave the schema, lead nowhere, or lead back to themselves."""
    safe: set[str] = set()
    on_path: set[str] = set()

    def follow(pointer: str) -> None:
        if pointer in safe:
            return
        if pointer in on_path:
            raise invalid(param, "recursive references are not supported")
        on_path.add(pointer)
        for inner in _references(_resolve(schema, pointer, param)):
            follow(inner)
        on_path.discard(pointer)
        safe.add(pointer)

    for reference in _references(schema):
        follow(reference)


def _references(node: Any) -> list[str]:
    return [
        inner["$ref"]
        for _, inner in _walk(node)
        if isinstance(inner, dict) and isinstance(inner.get("$ref"), str)
    ]


def _resolve(schema: Schema, pointer: str, param: str) -> Any:
    if not pointer.startswith("#"):
        raise invalid(param, "references to other documents are not supported")
    node: Any = schema
    for step in pointer.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            raise invalid(param, "a reference leads nowhere")
    return node
