"""JSON Schemas from clients: small, plain and finite, or an engine compiles them for hours.

Everything here costs time linear in the schema's bytes. What counts is how large a schema is
once its references and the repeats of its patterns are written out: a few characters of nested
repeats make a grammar of millions of states, and a schema may refer to itself, as trees and
lists of lists do. What vLLM 0.32 refuses (`has_xgrammar_unsupported_json_features`) without a
word on which it is, or takes and does not hold the answer to, is refused here by name.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from warnings import catch_warnings

import msgspec

from serving.contract.grammar import SCHEMAS_BYTES_MAX
from serving.gateway.dialects.validation import invalid

PATTERN_CHARACTERS_MAX = 1_000
COUNT_MAX = 4_096
PATTERN_SIZE_MAX = 2_000
"""xgrammar 0.2.8 takes half a second for it, and four times as long for twice as much."""
WIDE = 3
"""What a dot, a negated class or one beyond ASCII counts for: they are automata of bytes."""
PATTERN_GROUPS_MAX = 32
"""How deep groups may nest."""
WIDE_CLASSES = ("\\W", "\\D", "\\S", "\\u", "\\U", "\\x")
_REPEAT = re.compile(r"\{(\d{1,5})?(,)?(\d{1,5})?\}")


class PatternTooComplex(Exception):
    """What is wrong with a pattern, to follow the words "a pattern"."""


def expanded_size(pattern: str) -> int:
    """Return the pattern's size in characters and classes, with repeats written out."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise PatternTooComplex(f"is longer than {PATTERN_CHARACTERS_MAX} characters")
    size = _Size(pattern).count()
    if size > PATTERN_SIZE_MAX:
        raise PatternTooComplex(
            f"repeats so often that it is larger than {PATTERN_SIZE_MAX} characters"
        )
    try:
        with catch_warnings(action="ignore"):  # of what another Python may read otherwise
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise PatternTooComplex("is not a regular expression") from None
    return size


class _Size:
    """One pass over a pattern. `_open` are the sizes of the groups that are open, `_last` the
    size of what a repeat would repeat."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._open = [0]
        self._last = 0

    def count(self) -> int:
        """Return the size. Raises PatternTooComplex."""
        while self._at < len(self._pattern):
            self._step()
            if max(self._open[-1], self._last) > PATTERN_SIZE_MAX:
                return PATTERN_SIZE_MAX + 1
        if len(self._open) != 1:
            raise PatternTooComplex("leaves a group open")
        return self._open[0] + self._last

    def _step(self) -> None:
        letter = self._pattern[self._at]
        if letter == "(":
            self._settle()
            self._open.append(0)
            if len(self._open) > PATTERN_GROUPS_MAX:
                raise PatternTooComplex(f"nests more than {PATTERN_GROUPS_MAX} groups")
        elif letter == ")":
            self._close()
        elif letter == "[":
            self._class()
        elif letter == "{" and (match := _REPEAT.match(self._pattern, self._at)):
            self._repeat(match)
            return
        elif letter not in "*+?|":
            self._settle()
            is_wide = letter == "." or letter > "\x7f" or self._starts_with(WIDE_CLASSES)
            self._last = WIDE if is_wide else 1
            self._at += letter == "\\"
        self._at += 1

    def _settle(self) -> None:
        """Count what no repeat followed."""
        self._open[-1] += self._last
        self._last = 0

    def _close(self) -> None:
        self._settle()
        if len(self._open) == 1:
            raise PatternTooComplex("closes a group that is not open")
        self._last = max(1, self._open.pop())

    def _class(self) -> None:
        """Skip a class of characters: it counts as one."""
        self._settle()
        end = self._at + 1
        while end < len(self._pattern) and (self._pattern[end] != "]" or end == self._at + 1):
            end += 2 if self._pattern[end] == "\\" else 1
        letters = self._pattern[self._at + 1 : end]
        is_wide = letters.startswith("^") or not letters.isascii() or "\\" in letters
        self._at = end
        self._last = WIDE if is_wide else 1

    def _starts_with(self, marks: tuple[str, ...]) -> bool:
        return self._pattern.startswith(marks, self._at)

    def _repeat(self, match: re.Match[str]) -> None:
        counts = [int(count) for count in match.group(1, 3) if count is not None]
        if any(count > COUNT_MAX for count in counts):
            raise PatternTooComplex(f"repeats more than {COUNT_MAX} times")
        self._last *= max(counts, default=1) or 1
        self._at = match.end()


Schema = dict[str, Any]
Edge = tuple[str, Any]
"""A container in a schema, after the keyword that leads to it."""

DEPTH_MAX = 16
HEIGHT_MAX = 64
EXPANDED_MAX = 20_000
INDEX_DIGITS_MAX = 6
DEFINITIONS = frozenset({"$defs", "definitions"})
INWARD = frozenset(
    {"properties", "patternProperties", "additionalProperties", "items", "prefixItems"}
)
"""Keywords that lead into a value. A schema that refers to itself by one of them is written level
by level; by none, nothing would ever be written."""


class SchemaReferences:
    """A schema as a graph: its containers, deepest first, and what each leads to.

    What the root defines counts where it is referred to. Raises BadRequest naming `param`.
    """

    def __init__(self, schema: Schema, param: str) -> None:
        self._schema = schema
        self._param = param
        self._edges: dict[int, list[Edge]] = {}
        self._deepest_first = list(self._walk())

    def written_out(self) -> int:
        """Return how many nodes the schema has with each reference written out, but for those back
        to a node that they are in: compilers make a rule of it. Raises BadRequest."""
        known: dict[int, tuple[int, int]] = {}
        for node in self._deepest_first:
            inner = [known.get(id(each), (1, 0)) for _, each in self._edges[id(node)]]
            height = 1 + max((height for _, height in inner), default=0)
            if height > HEIGHT_MAX:
                raise invalid(self._param, f"references lead deeper than {HEIGHT_MAX} levels")
            size = 1 + sum(size for size, _ in inner)
            known[id(node)] = min(size, EXPANDED_MAX + 1), height
        return known[id(self._schema)][0]

    def check_circles(self) -> None:
        """Raise BadRequest where a reference leads back to itself by no property and no item.

        Nodes that nothing leads to are taken away until none is left, or a circle is.
        """
        outward = {
            place: [id(each) for keyword, each in edges if keyword not in INWARD]
            for place, edges in self._edges.items()
        }
        ways_to = Counter(target for targets in outward.values() for target in targets)
        free = [place for place in outward if not ways_to[place]]
        for place in free:
            for target in outward[place]:
                ways_to[target] -= 1
                if not ways_to[target]:
                    free.append(target)
        if len(free) < len(outward):
            wanted = "a reference leads back to itself by no property and no item"
            raise invalid(self._param, wanted)

    def _walk(self) -> Iterator[Any]:
        """Yield each node once, after all that it leads to; without recursion, since depth is what
        is in doubt."""
        path = [(self._schema, self._open(self._schema))]
        while path:
            node, unseen = path[-1]
            found = next((each for _, each in unseen if id(each) not in self._edges), None)
            if found is None:
                path.pop()
                yield node
            else:
                path.append((found, self._open(found)))

    def _open(self, node: Any) -> Iterator[Edge]:
        edges = self._edges[id(node)] = list(self._leads_to(node))
        return iter(edges)

    def _leads_to(self, node: Any) -> Iterator[Edge]:
        """Yield the containers in a node, and where its reference leads."""
        if isinstance(node, list):
            yield from (("", each) for each in node if isinstance(each, dict | list))
            return
        left_out = DEFINITIONS if node is self._schema else ()
        for keyword, each in node.items():
            if isinstance(each, dict | list) and keyword not in left_out:
                yield keyword, each
        if isinstance(node.get("$ref"), str):
            target = _resolve(self._schema, node["$ref"], self._param)
            if isinstance(target, dict | list):
                yield "$ref", target


def _resolve(schema: Schema, pointer: str, param: str) -> Any:
    if not pointer.startswith("#"):
        raise invalid(param, "references to other documents are not supported")
    node: Any = schema
    steps = pointer.removeprefix("#").split("/")[1:]
    if len(steps) > DEPTH_MAX:
        raise invalid(param, "a reference leads nowhere")
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and _is_index(name) and int(name) < len(node):
            node = node[int(name)]
        else:
            raise invalid(param, "a reference leads nowhere")
    return node


def _is_index(name: str) -> bool:
    """Tell whether a pointer's step is an index: digits, no zero ahead of others."""
    plain = name.isascii() and name.isdecimal() and len(name) <= INDEX_DIGITS_MAX
    return plain and (name == "0" or name[0] != "0")


ARRAY_KEYWORDS = ("uniqueItems", "contains", "minContains", "maxContains")
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
    for path, node in _walk_keywords(schema):
        found = next(_unenforced(node), None)
        if found is not None:
            place = f" at '{'.'.join(path)}'" if path else ""
            raise invalid(
                ".".join((param, *path)),
                f"no model can be held to {found}{place} of this schema; leave it out",
            )


def _walk_keywords(root: Schema) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
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
        yield from (f"'{name}'" for name in ARRAY_KEYWORDS if name in node)
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


NODES_MAX = 2_000
NODES_OF_REQUEST_MAX = 8_000
SCHEMA_BYTES_MAX = 64 * 1024
PATTERN_CHARACTERS_OF_REQUEST_MAX = 16_000
TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
LISTS = ("enum", "anyOf", "oneOf", "allOf")
FOREIGN = ("$dynamicRef", "$recursiveRef")
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value maps names of the client's to schemas."""


class SchemaValidator:
    """Checks the schemas of one request, which share a bound."""

    def __init__(self) -> None:
        self._bytes = 0
        self._nodes = 0
        self._pattern_characters = 0

    def check(self, schema: Schema, param: str, *, is_compiled: bool = True) -> None:
        """Raise BadRequest naming `param` unless the schema is one we let an engine compile, or one
        that it only shows to the model."""
        size = len(msgspec.json.encode(schema))
        if size > SCHEMA_BYTES_MAX:
            raise invalid(param, f"the schema is larger than {SCHEMA_BYTES_MAX} bytes")
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
        references = SchemaReferences(schema, param)
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
        except PatternTooComplex as error:
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
