"""JSON Schemas from clients: small, plain and finite, or an engine compiles them for hours.

Everything here costs time linear in the schema's bytes. What counts is how large a schema is once
its references (`schema_references.py`) and repeats are written out: an engine compiles that.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from serving.contract.grammar import SCHEMAS_BYTES_MAX
from serving.gateway.dialects.decode import invalid
from serving.gateway.dialects.pattern import PatternError, expanded_size
from serving.gateway.dialects.schema_references import (
    DEPTH_MAX,
    EXPANDED_MAX,
    References,
    Schema,
)

NODES_MAX = 2_000
NODES_OF_REQUEST_MAX = 8_000
BYTES_MAX = 64 * 1024
PATTERN_CHARACTERS_OF_REQUEST_MAX = 16_000
COUNT_MAX = 4_096
TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
LISTS = ("enum", "anyOf", "oneOf", "allOf")
FOREIGN = ("$dynamicRef", "$recursiveRef")
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value maps names of the client's to schemas."""


class SchemaCheck:
    """Checks the schemas of one request, which share a bound."""

    def __init__(self) -> None:
        self._bytes = 0
        self._nodes = 0
        self._pattern_characters = 0

    def check(self, schema: Schema, param: str, *, is_compiled: bool = True) -> None:
        """Raise BadRequest naming `param` unless the schema is one we let an engine compile, or one
        that it only shows to the model."""
        size = len(msgspec.json.encode(schema))
        if size > BYTES_MAX:
            raise invalid(param, f"the schema is larger than {BYTES_MAX} bytes")
        self._bytes += size
        if self._bytes > SCHEMAS_BYTES_MAX:
            raise invalid(param, f"all schemas are larger than {SCHEMAS_BYTES_MAX} bytes")
        patterns = 0
        for count, (depth, node) in enumerate(_walk(schema)):
            if depth > DEPTH_MAX:
                raise invalid(param, f"the schema is nested deeper than {DEPTH_MAX} levels")
            if count >= NODES_MAX:
                raise invalid(param, f"the schema has more than {NODES_MAX} nodes")
            self._nodes += 1
            if isinstance(node, dict):
                _check_keywords(node, param)
                if is_compiled:
                    _check_counts(node, param)
                patterns += self._pattern_size(node.get("pattern"), param)
        if self._nodes > NODES_OF_REQUEST_MAX:
            raise invalid(param, f"all schemas have more than {NODES_OF_REQUEST_MAX} nodes")
        references = References(schema, param)
        references.check_circles()
        if patterns + references.written_out() > EXPANDED_MAX:
            raise invalid(
                param, f"the schema is larger than {EXPANDED_MAX} nodes with all references"
            )

    def _pattern_size(self, pattern: Any, param: str) -> int:
        """Return how large a pattern is, if it is one: a property may bear that name too."""
        if not isinstance(pattern, str):
            return 0
        self._pattern_characters += len(pattern)
        if self._pattern_characters > PATTERN_CHARACTERS_OF_REQUEST_MAX:
            wanted = f"{PATTERN_CHARACTERS_OF_REQUEST_MAX} characters"
            raise invalid(param, f"all patterns are longer than {wanted}")
        try:
            return expanded_size(pattern)
        except PatternError as error:
            raise invalid(param, f"a pattern {error}") from None


def _walk(root: Any) -> Iterator[tuple[int, Any]]:
    """Yield every value with its depth; without recursion, since depth is what is in doubt."""
    waiting = [(1, root)]
    while waiting:
        depth, node = waiting.pop()
        yield depth, node
        waiting.extend((depth + 1, value) for value in _children(node))


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _check_keywords(node: Schema, param: str) -> None:
    """Check the keywords that are known to hurt.

    A property may bear a keyword's name: its value is a schema then, not a count, list or text.
    """
    kind = node.get("type")
    named = kind if isinstance(kind, list) else [kind] if isinstance(kind, str) else []
    if not all(isinstance(name, str) and name in TYPES for name in named):
        raise invalid(param, "'type' is not a JSON Schema type")
    for name in LISTS:
        if node.get(name) == []:
            raise invalid(param, f"'{name}' is empty")
    if any(name in node for name in FOREIGN):
        raise invalid(param, "dynamic references are not supported")
    _check_subschemas(node, param)


def _check_counts(node: Schema, param: str) -> None:
    for name in COUNTS:
        count = node.get(name)
        if isinstance(count, int | float) and not 0 <= count <= COUNT_MAX:
            raise invalid(param, f"'{name}' is not within 0 to {COUNT_MAX}", count)


def _check_subschemas(node: Schema, param: str) -> None:
    """Refuse forms of a subschema that an engine's compiler does not know."""
    if isinstance(node.get("items"), list):
        raise invalid(param, "'items' is a list; use 'prefixItems'")
    for name in MAPS:
        named = node.get(name)
        if isinstance(named, dict) and any(value is False for value in named.values()):
            raise invalid(param, f"'{name}' holds a schema of false, which nothing can match")
