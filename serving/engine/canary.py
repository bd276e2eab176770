"""What a replica must do before it is `ready`: one short request for each part that is used."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from serving.engine.work import AnswerFormat, EngineRequest, Operation, Work, write

PROBE_SALT = "penstock-probe"
"""Probes never share a prefix with a customer, nor tell one anything."""
PROBE_PROMPT = "Hello"
TOKENS_MAX = 8
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "answer", "parameters": SCHEMA, "strict": True},
}
SAMPLING: dict[str, Any] = {
    "prompt": PROBE_PROMPT,
    "temperature": 0.7,
    "top_p": 0.9,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "seed": 1,
}


@dataclass(frozen=True, slots=True)
class Exercise:
    """One request, and what it puts to work."""

    name: str
    request: EngineRequest


def exercises(capabilities: Collection[str], served_name: str) -> tuple[Exercise, ...]:
    """Return a request for each part of an engine with these capabilities."""
    bodies: list[tuple[str, Operation, AnswerFormat | None, dict[str, Any]]] = []
    if "completions" in capabilities:
        bodies.append(("sampling", "completions", None, SAMPLING))
        if "logprobs" in capabilities:
            logprobs = SAMPLING | {"logprobs": 1}
            bodies.append(("logprobs", "completions", None, logprobs))
        if "json_schema" in capabilities:
            schema = {"name": "answer", "schema": SCHEMA, "strict": True}
            form = {"type": "json_schema", "json_schema": schema}
            asked = AnswerFormat(msgspec.json.encode(form), msgspec.json.encode(SCHEMA))
            bodies.append(("a grammar", "completions", asked, {"prompt": PROBE_PROMPT}))
    if {"chat", "tools"} <= set(capabilities):
        messages = [{"role": "user", "content": PROBE_PROMPT}]
        tools = {"messages": messages, "tools": [TOOL], "tool_choice": "required"}
        bodies.append(("tools", "chat", None, tools))
    return tuple(
        Exercise(name, _request(operation, asked, body, capabilities, served_name))
        for name, operation, asked, body in bodies
    )


def _request(
    operation: Operation,
    answer_format: AnswerFormat | None,
    body: dict[str, Any],
    capabilities: Collection[str],
    served_name: str,
) -> EngineRequest:
    work = Work(
        operation=operation,
        fields=(msgspec.json.encode(body)[:-1],),
        is_streamed=True,
        may_call_tools="tools" in body,
        feature="plain",
        answer_format=answer_format,
        choices=1,
        prompts=1,
        output_tokens_max=TOKENS_MAX,
    )
    return write(
        work,
        served_name=served_name,
        capabilities=set(capabilities) - {"request_id"},
        cache_salt=PROBE_SALT,
        request_id="canary",
    )
