"""The fields of `POST /v1/messages` and `POST /v1/messages/count_tokens`.

A message is made of blocks, each kind with its own closed type. All that an answer of ours holds
is taken back. `cache_control` asks for what happens anyway: every prefix is cached.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from serving.gateway.dialects.json_schema import Schema
from serving.gateway.dialects.openai.chat_request import (
    TOOLS_MAX,
    Description,
    FunctionName,
    Hint,
    Label,
    StopText,
    StrictStruct,
    TokenCount,
)
from serving.gateway.dialects.validation import invalid

BLOCKS_MAX = 1_024


class CacheControl(StrictStruct):
    """A wish to cache what stands before it."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class TextBlock(StrictStruct, tag_field="type", tag="text"):
    """A piece of text."""

    text: str
    cache_control: CacheControl | None = None
    citations: Annotated[list[Any], Meta(max_length=0)] | None = None


class ThinkingBlock(StrictStruct, tag_field="type", tag="thinking"):
    """What the model thought."""

    thinking: str
    signature: str = ""


class ToolUseBlock(StrictStruct, tag_field="type", tag="tool_use"):
    """A call that the model made, in its own words."""

    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: Any = None
    toolset_name: None = None


class ToolResultBlock(StrictStruct, tag_field="type", tag="tool_result"):
    """What a tool answered."""

    tool_use_id: str
    content: str | Annotated[list[TextBlock], Meta(max_length=BLOCKS_MAX)] = ""
    is_error: bool | None = None
    cache_control: CacheControl | None = None
    toolset_name: None = None


Block = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock
Blocks = Annotated[list[Block], Meta(min_length=1, max_length=BLOCKS_MAX)]
TextBlocks = Annotated[list[TextBlock], Meta(min_length=1, max_length=BLOCKS_MAX)]


class MessageParam(StrictStruct):
    """One message of the conversation; instructions may come amid it."""

    role: Literal["user", "assistant", "system"]
    content: str | Blocks


class AnthropicTool(StrictStruct):
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


class AutoToolChoice(StrictStruct, tag_field="type", tag="auto"):
    """The model may call tools."""

    disable_parallel_tool_use: bool | None = None


class AnyToolChoice(StrictStruct, tag_field="type", tag="any"):
    """The model must call a tool."""

    disable_parallel_tool_use: bool | None = None


class NamedAnthropicToolChoice(StrictStruct, tag_field="type", tag="tool"):
    """The model must call this tool."""

    name: FunctionName
    disable_parallel_tool_use: bool | None = None


class NoToolChoice(StrictStruct, tag_field="type", tag="none"):
    """The model must not call tools."""


Choice = AutoToolChoice | AnyToolChoice | NamedAnthropicToolChoice | NoToolChoice


class MessagesMetadata(StrictStruct):
    """Labels of the client's."""

    user_id: Label | None = None


class ThinkingConfig(StrictStruct):
    """Whether the model should think; one that does is not switched on and off by requests."""

    type: Literal["disabled", "adaptive", "between_tools", "enabled"]
    display: Literal["summarized", "omitted"] | None = None
    budget_tokens: int | None = None


class JsonFormat(StrictStruct):
    """JSON that holds to a schema."""

    type: Literal["json_schema"]
    schema: Schema


class OutputConfig(StrictStruct):
    """How the answer should be."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class CountTokensRequest(StrictStruct, kw_only=True):
    """Every field that may be sent to be counted."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    messages: Annotated[list[MessageParam], Meta(min_length=1, max_length=4_096)]
    cache_control: CacheControl | None = None
    context_management: Hint = None
    output_config: OutputConfig | None = None
    speed: Literal["standard"] | None = None
    system: str | TextBlocks | None = None
    thinking: ThinkingConfig | None = None
    tool_choice: Choice | None = None
    tools: Annotated[list[AnthropicTool], Meta(max_length=TOOLS_MAX)] | None = None


class MessagesRequest(CountTokensRequest, kw_only=True):
    """Every field that a client may send."""

    max_tokens: TokenCount
    diagnostics: Hint = None
    metadata: MessagesMetadata | None = None
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
