"""Bodies made to hold the event loop, each once seen to do so or to come close."""

import json
from collections.abc import Callable
from typing import Any

from serving.gateway.dialects.chat import Chat
from serving.gateway.dialects.completions import Completions
from serving.gateway.dialects.dialect import Dialect
from serving.gateway.dialects.embeddings import Embeddings

CHAT, COMPLETIONS, EMBEDDINGS = Chat(), Completions(), Embeddings()
USER = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> bytes:
    return json.dumps({"model": "demo", "messages": [USER]} | fields).encode()


def completion(**fields: Any) -> bytes:
    return json.dumps({"model": "demo", "prompt": "hi"} | fields).encode()


def embeddings(given: Any, **fields: Any) -> bytes:
    return json.dumps({"model": "demo-embed", "input": given} | fields).encode()


def tools(schemas: list[Any]) -> bytes:
    functions = [{"name": f"f{n}", "parameters": schema} for n, schema in enumerate(schemas)]
    return chat(tools=[{"type": "function", "function": each} for each in functions])


def chain(length: int) -> dict[str, Any]:
    """A reference to a reference to a reference."""
    names = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(length)}
    return {"$defs": names | {f"d{length}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def doubling(depth: int) -> dict[str, Any]:
    """Each definition names the next twice: 2^depth nodes once written out."""
    names = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(depth)
    }
    return {"$defs": names | {f"d{depth}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def distinct_references(count: int) -> dict[str, Any]:
    """Pointers that all lead to much."""
    much = {f"p{n}": {"type": "string"} for n in range(count)}
    return {"$defs": {"a": {"properties": much}}, "anyOf": [{"$ref": "#/$defs/a"}] * count}


def wide(count: int) -> dict[str, Any]:
    """Many small schemas side by side."""
    return {"properties": {f"p{n}": {"type": "string", "minLength": 1} for n in range(count)}}


def patterns(count: int) -> dict[str, Any]:
    """Patterns that are all different, so that none is known already."""
    return {"anyOf": [{"pattern": f"{n}" + "(a|b)[a-z]" * 95} for n in range(count)]}


def zeros(count: int) -> dict[str, Any]:
    """Pointers into a list, each with other zeros ahead of its index."""
    return {"anyOf": [{"$ref": "#/anyOf/" + "0" * n + "1"} for n in range(count)]}


CALLS = {
    "role": "assistant",
    "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}] * 128,
}

BODIES: dict[str, tuple[Dialect, Callable[[], bytes]]] = {
    "a role of 384 KB": (CHAT, lambda: chat(messages=[{"role": "x" * 393_216, "content": "a"}])),
    "a role of backquotes": (
        CHAT,
        lambda: chat(messages=[{"role": " - at `$." * 40_000, "content": "a"}]),
    ),
    "a field of 384 KB": (CHAT, lambda: chat(**{"unknown field `" * 26_000: 1})),
    "a key of a bias": (CHAT, lambda: chat(logit_bias={"1" * 5_000: 1})),
    "a chain of 985 references": (CHAT, lambda: tools([chain(985)])),
    "references that double": (CHAT, lambda: tools([doubling(300)])),
    "128 schemas of references": (CHAT, lambda: tools([distinct_references(60)] * 128)),
    "references to much": (CHAT, lambda: tools([distinct_references(600)])),
    "schemas of many properties": (CHAT, lambda: tools([wide(600)] * 4)),
    "a reference from everywhere": (CHAT, lambda: tools([distinct_references(0)] * 30)),
    "a thousand long patterns": (CHAT, lambda: tools([patterns(50)] * 24)),
    "indices with leading zeros": (CHAT, lambda: tools([zeros(60)] * 128)),
    "an index of 5,000 digits": (
        CHAT,
        lambda: tools([{"anyOf": [{"$ref": "#/anyOf/" + "1" * 5_000}]}]),
    ),
    "schemas that vLLM answers 5xx": (
        CHAT,
        lambda: tools([{"properties": {"a": False}, "items": [{}]}]),
    ),
    "calls of tools, 2 MB": (CHAT, lambda: chat(messages=[CALLS] * 250)),
    "nothing but labels": (CHAT, lambda: chat(metadata={str(n): "x" for n in range(200_000)})),
    "a pattern": (CHAT, lambda: tools([{"pattern": "((((a{9}){9}){9}){9}){9}"}])),
    "a pattern of openings": (CHAT, lambda: tools([{"pattern": "(" * 1_000}] * 128)),
    "a million token ids": (COMPLETIONS, lambda: completion(prompt=[1] * 2**20)),
    "mixed token ids": (COMPLETIONS, lambda: completion(prompt=[1] * 2**19 + ["a"])),
    "a thousand vectors as text": (EMBEDDINGS, lambda: embeddings(["a"] * 1_024)),
    "two thousand vectors": (
        EMBEDDINGS,
        lambda: embeddings(["a"] * 2_048, encoding_format="base64"),
    ),
    "a batch of token ids": (EMBEDDINGS, lambda: embeddings([[1] * 300] * 1_000)),
    "inputs of one byte": (EMBEDDINGS, lambda: embeddings(["a"] * 300_000)),
    "an empty input at the end": (EMBEDDINGS, lambda: embeddings(["a" * 1_000] * 1_000 + [""])),
}
