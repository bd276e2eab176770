"""The fields of `POST /v1/responses`, and what an answer repeats of them.

A conversation is made of items, each kind with its own closed type; an item without a type is a
message. All that an answer of ours holds is taken back.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from serving.gateway.dialects.json_schema import Schema
from serving.gateway.dialects.openai.chat_request import (
    TOOLS_MAX,
    Description,
    Effort,
    FunctionName,
    Hint,
    Label,
    ServiceTier,
    StrictStruct,
    TokenCount,
    Verbosity,
)
from serving.gateway.dialects.openai.responses_tools import (
    CalledTool,
    ResponsesFunctionTool,
    Tool,
    Tools,
)
from serving.gateway.dialects.validation import StrictDecoder, invalid, with_path
from serving.gateway.errors import BadRequest, Headers

ITEMS_MAX = 4_096
Status = Literal["in_progress", "completed", "incomplete"]


class InputTextParam(StrictStruct, tag_field="type", tag="input_text"):
    """A piece of what somebody says."""

    text: str
    prompt_cache_breakpoint: Hint = None


class OutputTextParam(StrictStruct, tag_field="type", tag="output_text"):
    """A piece of what the model said."""

    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None
    parsed: Any = None


class RefusalParam(StrictStruct, tag_field="type", tag="refusal"):
    """What the model said instead of an answer."""

    refusal: str


class ReasoningTextParam(StrictStruct, tag_field="type", tag="reasoning_text"):
    """A piece of what the model thought."""

    text: str


class SummaryTextParam(StrictStruct, tag_field="type", tag="summary_text"):
    """A summary of what a model thought."""

    text: str


Part = InputTextParam | OutputTextParam | RefusalParam
Parts = Annotated[list[Part], Meta(min_length=1, max_length=1_024)]


class MessageItemParam(StrictStruct):
    """What somebody says, or the model said."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | Parts
    type: Literal["message"] = "message"
    id: str | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCallItemParam(StrictStruct):
    """A call that the model made, in its own words."""

    call_id: str
    name: str
    arguments: str
    type: Literal["function_call"]
    id: str | None = None
    status: Status | None = None
    caller: Any = None
    namespace: str | None = None
    async_: Literal[False] | None = msgspec.field(name="async", default=None)
    parsed_arguments: Any = None


class CustomToolCallItem(StrictStruct):
    """A call of a custom tool that the model made."""

    call_id: str
    name: str
    input: str
    type: Literal["custom_tool_call"]
    id: str | None = None
    status: Status | None = None
    caller: Any = None
    namespace: str | None = None
    async_: Literal[False] | None = msgspec.field(name="async", default=None)


class FunctionCallOutputParam(StrictStruct):
    """What a function or a custom tool answered."""

    call_id: str
    output: str | Annotated[list[InputTextParam], Meta(min_length=1, max_length=1_024)]
    type: Literal["function_call_output", "custom_tool_call_output"]
    id: str | None = None
    status: Status | None = None
    caller: Any = None
    name: str | None = None
    namespace: str | None = None


class ReasoningItemParam(StrictStruct):
    """What the model thought before it spoke."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[SummaryTextParam] = []
    content: list[ReasoningTextParam] | None = None
    encrypted_content: str | None = None
    status: Status | None = None


Item = (
    MessageItemParam
    | FunctionCallItemParam
    | CustomToolCallItem
    | FunctionCallOutputParam
    | ReasoningItemParam
)


class _Kind(msgspec.Struct):
    type: str = "message"


_decode_kind = msgspec.json.Decoder(_Kind).decode
_decoders: dict[str, StrictDecoder] = {
    "message": StrictDecoder(MessageItemParam),
    "function_call": StrictDecoder(FunctionCallItemParam),
    "function_call_output": StrictDecoder(FunctionCallOutputParam),
    "custom_tool_call": StrictDecoder(CustomToolCallItem),
    "custom_tool_call_output": StrictDecoder(FunctionCallOutputParam),
    "reasoning": StrictDecoder(ReasoningItemParam),
}


def read_items(raw: list[msgspec.Raw]) -> list[Any]:
    """Return the items. Raises BadRequest that names the one at fault."""
    return [_read_item(item, f"input[{place}]") for place, item in enumerate(raw)]


def _read_item(raw: msgspec.Raw, place: str) -> Any:
    try:
        kind = _decode_kind(raw).type
    except msgspec.ValidationError:
        raise invalid(place, "an item is an object, its type a text") from None
    if kind == "item_reference":
        raise invalid(f"{place}.type", "nothing is kept here to refer to; set store: false")
    decode = _decoders.get(kind)
    if decode is None:
        raise invalid(
            f"{place}.type",
            "only messages, reasoning, and calls of functions and custom tools are known",
        )
    try:
        return decode(raw)
    except BadRequest as error:
        raise with_path(error, place) from None


Includable = Literal["reasoning.encrypted_content", "message.output_text.logprobs"]
LOGPROBS: Includable = "message.output_text.logprobs"


class NamedFunctionChoice(StrictStruct, tag_field="type", tag="function"):
    """The choice of one function."""

    name: FunctionName


class NamedCustom(StrictStruct, tag_field="type", tag="custom"):
    """The choice of one custom tool."""

    name: FunctionName


class AllowedTool(msgspec.Struct):
    """One of the tools to choose from; those that are left out have no name."""

    type: str
    name: str | None = None


class AllowedFunctionsChoice(StrictStruct, tag_field="type", tag="allowed_tools"):
    """The choice of some of the tools."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedTool], Meta(min_length=1, max_length=TOOLS_MAX)]


ToolChoice = (
    Literal["none", "auto", "required"] | NamedFunctionChoice | NamedCustom | AllowedFunctionsChoice
)


class PlainTextFormat(StrictStruct, tag_field="type", tag="text"):
    """No format."""


class ResponsesJsonObjectFormat(StrictStruct, tag_field="type", tag="json_object"):
    """Any JSON object."""


class ResponsesJsonSchemaFormat(StrictStruct, tag_field="type", tag="json_schema"):
    """JSON that holds to a schema."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+\Z")]
    schema: Schema
    description: Description | None = None
    strict: bool | None = None


class TextOptions(StrictStruct):
    """How the text should be."""

    format: PlainTextFormat | ResponsesJsonObjectFormat | ResponsesJsonSchemaFormat | None = None
    verbosity: Verbosity | None = None


class ReasoningConfig(StrictStruct):
    """How hard the model should think; its thoughts are told as they are, not summed up."""

    effort: Effort | None = None
    context: Literal["auto"] | None = None
    mode: Literal["standard"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class ResponsesStreamOptions(StrictStruct):
    """What a stream tells besides its text."""

    include_obfuscation: bool | None = None


class ResponsesRequest(StrictStruct, kw_only=True):
    """Every field that a client may send; `input` and `tools` hold what they are
    made of once that is read.

    Those that ask for a memory are here to be refused in words.
    """

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    input: str | Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=ITEMS_MAX)]
    background: bool | None = None
    client_metadata: Hint = None
    context_management: Hint = None
    conversation: Any = None
    include: Annotated[list[Includable], Meta(max_length=8)] | None = None
    instructions: str | None = None
    max_output_tokens: TokenCount | None = None
    max_tool_calls: Hint = None
    metadata: Annotated[dict[str, Label], Meta(max_length=16)] | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_options: Hint = None
    prompt_cache_retention: Hint = None
    reasoning: ReasoningConfig | None = None
    safety_identifier: Label | None = None
    service_tier: ServiceTier | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: ResponsesStreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    text: TextOptions | None = None
    tool_choice: ToolChoice | None = None
    tools: Annotated[list[msgspec.Raw], Meta(max_length=TOOLS_MAX)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    truncation: Literal["disabled"] | None = None
    user: Label | None = None


def check(request: ResponsesRequest) -> None:
    """Refuse what needs a memory. Raises BadRequest."""
    if request.store:
        raise invalid("store", "answers are not kept here; set it to false", True)
    if request.background:
        raise invalid("background", "answers are not kept here; ask for a stream instead", True)
    for name in ("previous_response_id", "conversation"):
        if getattr(request, name) is not None:
            wanted = "answers are not kept here; send the conversation in 'input'"
            raise invalid(name, wanted, getattr(request, name))
    if request.stream_options is not None and not request.stream:
        raise invalid("stream_options", "only allowed when 'stream' is true")


_write = msgspec.json.Encoder().encode


class ReasoningEcho(msgspec.Struct):
    """How hard the model was asked to think."""

    effort: str | None = None
    summary: None = None


class RequestEcho(msgspec.Struct, frozen=True):
    """The fields of an answer that say what was asked; those that are `Raw` are JSON already."""

    instructions: msgspec.Raw
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    prompt_cache_key: str | None
    reasoning: ReasoningEcho
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


def asked_of(request: ResponsesRequest, tools: Tools) -> RequestEcho:
    """Return what an answer to a request repeats of it."""
    text = TextOptions(format=(request.text and request.text.format) or PlainTextFormat())
    return RequestEcho(
        instructions=_raw(request.instructions),
        max_output_tokens=request.max_output_tokens,
        metadata=request.metadata or {},
        parallel_tool_calls=request.parallel_tool_calls is not False,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=ReasoningEcho(request.reasoning.effort if request.reasoning else None),
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
    return told | {"strict": tool.strict} if isinstance(tool, ResponsesFunctionTool) else told
