"""The bodies of `POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from serving.gateway.dialects.anthropic.blocks import CacheControl, TextBlocks, Turn
from serving.gateway.dialects.chat import TOOLS_MAX, Description
from serving.gateway.dialects.decode import invalid
from serving.gateway.dialects.messages import Closed, FunctionName, Hint
from serving.gateway.dialects.sampling import Label, StopText, TokenCount
from serving.gateway.dialects.schema_references import Schema


class Tool(Closed):
    """A tool of the client's own; there are no others. It is always there, calls stream anyway."""

    name: FunctionName
    input_schema: Schema
    type: Literal["custom"] | None = None
    description: Description | None = None
    strict: bool | None = None
    cache_control: CacheControl | None = None
    allowed_callers: Hint = None
    defer_loading: Hint = None
    eager_input_streaming: Hint = None
    input_examples: Hint = None


class AutoChoice(Closed, tag_field="type", tag="auto"):
    """The model may call tools."""

    disable_parallel_tool_use: bool | None = None


class AnyChoice(Closed, tag_field="type", tag="any"):
    """The model must call a tool."""

    disable_parallel_tool_use: bool | None = None


class ToolChoice(Closed, tag_field="type", tag="tool"):
    """The model must call this tool."""

    name: FunctionName
    disable_parallel_tool_use: bool | None = None


class NoChoice(Closed, tag_field="type", tag="none"):
    """The model must not call tools."""


Choice = AutoChoice | AnyChoice | ToolChoice | NoChoice


class Metadata(Closed):
    """Labels of the client's."""

    user_id: Label | None = None


class Thinking(Closed):
    """Whether the model should think; one that does is not switched on and off by requests."""

    type: Literal["disabled", "adaptive", "between_tools", "enabled"]
    display: Literal["summarized", "omitted"] | None = None
    budget_tokens: int | None = None


class JsonFormat(Closed):
    """JSON that holds to a schema."""

    type: Literal["json_schema"]
    schema: Schema


class OutputConfig(Closed):
    """How the answer should be."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class CountRequest(Closed, kw_only=True):
    """Every field that may be sent to be counted."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    messages: Annotated[list[Turn], Meta(min_length=1, max_length=4_096)]
    cache_control: CacheControl | None = None
    context_management: Hint = None
    output_config: OutputConfig | None = None
    speed: Literal["standard"] | None = None
    system: str | TextBlocks | None = None
    thinking: Thinking | None = None
    tool_choice: Choice | None = None
    tools: Annotated[list[Tool], Meta(max_length=TOOLS_MAX)] | None = None


class MessagesRequest(CountRequest, kw_only=True):
    """Every field that a client may send."""

    max_tokens: TokenCount
    diagnostics: Hint = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    stop_sequences: Annotated[list[StopText], Meta(max_length=16)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None


MISPLACED = {
    "user": ("thinking", "tool_use"),
    "assistant": ("tool_result",),
    "system": ("thinking", "tool_use", "tool_result"),
}
"""Kinds of blocks by the role that they are not allowed in."""


def check(request: Any) -> None:
    """Refuse what cannot be done. Raises BadRequest."""
    if request.thinking is not None and request.thinking.type == "enabled":
        wanted = "a budget for thinking is not supported; leave it out, or set 'adaptive'"
        raise invalid("thinking", wanted, "enabled")
    for place, turn in enumerate(request.messages):
        if isinstance(turn.content, str):
            continue
        wrong = MISPLACED[turn.role]
        for at, block in enumerate(turn.content):
            if block.__struct_config__.tag in wrong:
                name = f"messages[{place}].content[{at}].type"
                raise invalid(name, f"not allowed where the role is '{turn.role}'")
