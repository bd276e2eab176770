"""What an engine cannot hold an answer to, though JSON Schema has a word for it.

vLLM 0.32 refuses these (`has_xgrammar_unsupported_json_features`) without a word on which it is;
asked in another way it takes them, and does not hold the answer to them.
"""

from collections.abc import Iterator
from typing import Any

from serving.gateway.dialects.decode import invalid
from serving.gateway.dialects.schema_references import Schema

OF_ARRAYS = ("uniqueItems", "contains", "minContains", "maxContains")
LENGTHS = ("minLength", "maxLength")
FORMATS = frozenset(
    {
        "email",
        "date",
        "time",
        "date-time",
        "duration",
        "ipv4",
        "ipv6",
        "hostname",
        "uuid",
        "uri",
        "uri-reference",
        "uri-template",
        "json-pointer",
        "relative-json-pointer",
    }
)


def check_enforceable(schema: Schema, param: str) -> None:
    """Raise BadRequest that names a keyword which no answer is held to, and where it stands."""
    for path, node in _walk(schema):
        found = next(_unenforced(node), None)
        if found is not None:
            place = f" at '{'.'.join(path)}'" if path else ""
            raise invalid(
                ".".join((param, *path)),
                f"no model can be held to {found}{place} of this schema; leave it out",
            )


def _walk(root: Schema) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield every object of a schema with its path; how deep and how many is bounded before."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, dict):
            yield path, node
            waiting.extend(((*path, name), value) for name, value in node.items())
        elif isinstance(node, list):
            waiting.extend(((*path, str(at)), value) for at, value in enumerate(node))


def _unenforced(node: dict[str, Any]) -> Iterator[str]:
    """Yield the keywords of one object that are not enforced."""
    kind = node.get("type")
    kinds = {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, list) else set()
    if kinds & {"integer", "number"} and "multipleOf" in node:
        yield "'multipleOf'"
    if "array" in kinds:
        yield from (f"'{name}'" for name in OF_ARRAYS if name in node)
    if "string" in kinds:
        yield from _of_text(node)
    if "object" in kinds:
        yield from _of_object(node)
    if isinstance(node.get("allOf"), list) and len(node["allOf"]) > 1:
        yield "'allOf' with several schemas"


def _of_text(node: dict[str, Any]) -> Iterator[str]:
    form = node.get("format")
    if "format" in node and not (isinstance(form, str) and form in FORMATS):
        yield f"'format' of {str(form)[:40]!r}"
    yield from _bounds_beside_pattern(node)


def _of_object(node: dict[str, Any]) -> Iterator[str]:
    names, patterns = node.get("propertyNames"), node.get("patternProperties")
    if "propertyNames" in node:
        if isinstance(names, dict):
            yield from (f"{found} in 'propertyNames'" for found in _bounds_beside_pattern(names))
        for other in ("patternProperties", "properties"):
            if other in node:
                yield f"'propertyNames' beside '{other}'"
        if node.get("unevaluatedProperties", True) is not True:
            yield "'propertyNames' beside 'unevaluatedProperties'"
    if isinstance(patterns, dict):
        if "properties" in node:
            yield "'patternProperties' beside 'properties'"
        if len(patterns) > 1:
            yield "several 'patternProperties'"


def _bounds_beside_pattern(node: dict[str, Any]) -> Iterator[str]:
    for other in ("pattern", "format"):
        for length in LENGTHS:
            if other in node and length in node:
                yield f"'{length}' beside '{other}'"
