"""What of its request an answer of Responses repeats; what may be long is written once, where the
request was read."""

from typing import Any

import msgspec

from serving.gateway.dialects.responses.request import PlainText, ResponsesRequest, TextOptions
from serving.gateway.dialects.responses.tools import CalledTool, FunctionTool, Tool, Tools
from serving.gateway.errors import Headers

_write = msgspec.json.Encoder().encode


class ReasoningTold(msgspec.Struct):
    """How hard the model was asked to think."""

    effort: str | None = None
    summary: None = None


class Asked(msgspec.Struct, frozen=True):
    """The fields of an answer that say what was asked; those that are `Raw` are JSON already."""

    instructions: msgspec.Raw
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    prompt_cache_key: str | None
    reasoning: ReasoningTold
    safety_identifier: str | None
    temperature: float | None
    text: msgspec.Raw
    tool_choice: msgspec.Raw
    tools: msgspec.Raw
    top_logprobs: int
    top_p: float | None
    user: str | None
    called: dict[str, CalledTool]
    """The tools that the client calls otherwise than the model, by the latter's names. This and the
    headers are no fields of an answer."""
    headers: Headers


def asked_of(request: ResponsesRequest, tools: Tools) -> Asked:
    """Return what an answer to a request repeats of it."""
    text = TextOptions(format=(request.text and request.text.format) or PlainText())
    return Asked(
        instructions=_raw(request.instructions),
        max_output_tokens=request.max_output_tokens,
        metadata=request.metadata or {},
        parallel_tool_calls=request.parallel_tool_calls is not False,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=ReasoningTold(request.reasoning.effort if request.reasoning else None),
        safety_identifier=request.safety_identifier,
        temperature=request.temperature,
        text=_raw(text),
        tool_choice=_raw(request.tool_choice or "auto"),
        tools=_raw([_told(tool) for tool in tools.told]),
        top_logprobs=request.top_logprobs or 0,
        top_p=request.top_p,
        user=request.user,
        called={
            one.name: one.called
            for one in tools.offered
            if one.called.is_custom or one.namespace is not None
        },
        headers=tools.headers,
    )


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(_write(value))


def _told(tool: Tool) -> dict[str, Any]:
    """A function says whether it is strict, be it that it is not known."""
    told: dict[str, Any] = msgspec.to_builtins(tool)
    return told | {"strict": tool.strict} if isinstance(tool, FunctionTool) else told
