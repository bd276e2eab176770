"""The references of a JSON Schema: where each leads, and how large the schema is with all of them
written out. A schema may refer to itself, as trees and lists of lists do."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from serving.gateway.dialects.decode import invalid

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


class References:
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
