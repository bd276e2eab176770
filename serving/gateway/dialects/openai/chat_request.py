"""The fields of a chat: its messages, its tools, its format, and the sampling fields that it
shares with completions, each with its bounds."""

from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from serving.contract.records import ModelRecord
from serving.gateway.dialects.json_schema import Schema
from serving.gateway.dialects.validation import invalid

FunctionName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+\Z")]
Author = Annotated[str, Meta(max_length=128)]


class StrictStruct(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A type that refuses fields it does not know; absent fields stay absent for the engine."""


Hint = Any
"""Of a field that changes no answer here: taken, whatever it says, and not followed."""


class TextPart(StrictStruct, tag_field="type", tag="text"):
    """A piece of text; every prefix is cached, so that hints on caching change nothing."""

    text: str
    cache_control: Hint = None
    prompt_cache_breakpoint: Hint = None


class RefusalPart(StrictStruct, tag_field="type", tag="refusal"):
    """A refusal that the assistant gave earlier."""

    refusal: str


TextParts = Annotated[list[TextPart], Meta(min_length=1, max_length=1_024)]
Text = str | TextParts
AssistantParts = Annotated[list[TextPart | RefusalPart], Meta(max_length=1_024)]
"""None at all is what instructor makes of a turn that only called tools."""


class ChatFunctionCall(StrictStruct):
    """A call that the model made, in its own words: any name, arguments that may break off.

    `parsed_arguments` is the official client's own reading of them.
    """

    name: str
    arguments: str
    parsed_arguments: Any = None


class ChatToolCall(StrictStruct, tag_field="type", tag="function"):
    """One call of an assistant's message; `index` is where it stood in a stream."""

    id: str
    function: ChatFunctionCall
    index: int | None = None


class SystemMessage(StrictStruct, tag_field="role", tag="system"):
    """Instructions."""

    content: Text
    name: Author | None = None


class DeveloperMessage(StrictStruct, tag_field="role", tag="developer"):
    """Instructions, in the newer word for them."""

    content: Text
    name: Author | None = None


class UserMessage(StrictStruct, tag_field="role", tag="user"):
    """What the user says."""

    content: Text
    name: Author | None = None


class AssistantMessage(StrictStruct, tag_field="role", tag="assistant"):
    """What the model said: all that an answer of ours holds is taken back.

    The fields from `annotations` on are what clients add when they write such a message out:
    `parsed` is the content as they read it, `reasoning_content` another name for `reasoning`,
    `thinking_blocks` the same as Anthropic has it, `provider_specific_fields` LiteLLM's own; the
    others are always empty.
    """

    content: str | AssistantParts | None = None
    refusal: str | None = None
    name: Author | None = None
    reasoning: str | None = None
    tool_calls: list[ChatToolCall] | None = None
    annotations: Annotated[list[Any], Meta(max_length=0)] | None = None
    audio: None = None
    function_call: None = None
    parsed: Hint = None
    provider_specific_fields: Hint = None
    reasoning_content: str | None = None
    thinking_blocks: Hint = None


class ToolMessage(StrictStruct, tag_field="role", tag="tool"):
    """What a tool answered; `name` is the tool's."""

    content: Text
    tool_call_id: str
    name: Author | None = None


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


def for_engine(message: Message) -> Message:
    """Return the message in the words that chat templates know."""
    if isinstance(message, AssistantMessage):
        return _assistant_for_engine(message)
    content = _without_hints(message.content)
    if isinstance(message, DeveloperMessage):
        return SystemMessage(content=content, name=message.name)
    return message if content is message.content else replace(message, content=content)


def _without_hints(content: Text) -> Text:
    if isinstance(content, str):
        return content
    return [TextPart(part.text) for part in content]


def _assistant_for_engine(message: AssistantMessage) -> AssistantMessage:
    calls = [
        ChatToolCall(call.id, ChatFunctionCall(call.function.name, call.function.arguments))
        for call in message.tool_calls or ()
    ]
    content: Any = message.content or None
    if isinstance(content, list):
        content = [TextPart(part.text) if isinstance(part, TextPart) else part for part in content]
    return AssistantMessage(
        content="" if message.content == "" else content,
        refusal=message.refusal,
        name=message.name,
        reasoning=message.reasoning or message.reasoning_content,
        tool_calls=calls or None,
    )


LOGIT_BIAS_MAX = 300
TOKEN_DIGITS_MAX = 10
NO_SEED, SEED_SENT_INSTEAD = -1, 2**63 - 2
"""To vLLM -1 is no seed: four answers to the same question were four different ones."""
Bias = Annotated[float, Meta(ge=-100.0, le=100.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
StopText = Annotated[str, Meta(min_length=1, max_length=256)]
TokenCount = Annotated[int, Meta(ge=1, le=10**9)]
Label = Annotated[str, Meta(max_length=512)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]
ServiceTier = Literal["auto", "priority", "default", "flex", "batch"]


class ChatStreamOptions(StrictStruct):
    """What a stream tells besides its text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: Hint = None
    """Of vLLM: usage on every chunk. Here it comes once, at the end."""


class GenerationParams(StrictStruct, kw_only=True):
    """Fields with the same meaning on every route that generates."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    frequency_penalty: Penalty | None = None
    ignore_eos: bool | None = None
    logit_bias: Annotated[dict[str, Bias], Meta(max_length=LOGIT_BIAS_MAX)] | None = None
    max_tokens: TokenCount | None = None
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    n: Annotated[int, Meta(ge=1, le=8)] | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=2.0)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=4)] | None = None
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=10**6)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    user: Label | None = None


PASSED = (
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "min_p",
    "min_tokens",
    "n",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "temperature",
    "top_k",
    "top_p",
)
"""Fields that reach the engine as they came; all others are rebuilt or dropped."""


def check(request: GenerationParams, model: ModelRecord) -> None:
    """Check what depends on the model or on two fields at once. Raises BadRequest."""
    for token in request.logit_bias or ():
        is_number = token.isascii() and token.isdecimal() and len(token) <= TOKEN_DIGITS_MAX
        if not is_number or int(token) >= model.vocabulary_size:
            wanted = f"keys are token ids, 0 to {model.vocabulary_size - 1}"
            raise invalid("logit_bias", wanted, token)
    if request.temperature == 0 and (request.n or 1) > 1:
        wanted = "only 1 when 'temperature' is 0, since all answers would be the same"
        raise invalid("n", wanted, request.n)
    if request.stream_options is not None and not request.stream:
        raise invalid("stream_options", "only allowed when 'stream' is true")


class PassedFields:
    """Reads the fields to pass on of a route's requests, all at once."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._values = attrgetter(*names)

    def __call__(self, request: GenerationParams) -> dict[str, Any]:
        """Return the fields without those left out."""
        values = zip(self._names, self._values(request), strict=True)
        fields = {name: value for name, value in values if value is not None}
        if request.seed == NO_SEED:
            fields["seed"] = SEED_SENT_INSTEAD
        return fields


TOOLS_MAX = 128


Description = Annotated[str, Meta(max_length=64 * 1024)]
"""Agents write whole manuals: of Claude Code the longest has 19,000 characters."""


class FunctionDefinition(StrictStruct):
    """A function that the model may call."""

    name: FunctionName
    description: Description | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class ChatTool(StrictStruct):
    """A tool; functions are the only kind."""

    function: FunctionDefinition
    type: Literal["function"]


class FunctionReference(StrictStruct):
    """The name of a function."""

    name: FunctionName


class NamedToolChoice(StrictStruct, tag_field="type", tag="function"):
    """The choice of one tool."""

    function: FunctionReference


class AllowedToolSet(StrictStruct):
    """Some of the tools, of which the model may call any or must call one."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedToolChoice], Meta(min_length=1, max_length=TOOLS_MAX)]


class AllowedToolsChoice(StrictStruct, tag_field="type", tag="allowed_tools"):
    """The choice of some of the tools."""

    allowed_tools: AllowedToolSet


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice | AllowedToolsChoice


class JsonSchemaDefinition(StrictStruct):
    """A schema that the answer must hold to."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+\Z")]
    schema: Schema
    description: Description | None = None
    strict: bool | None = None


class TextFormat(StrictStruct, tag_field="type", tag="text"):
    """No format."""


class JsonObjectFormat(StrictStruct, tag_field="type", tag="json_object"):
    """Any JSON object."""


class JsonSchemaFormat(StrictStruct, tag_field="type", tag="json_schema"):
    """JSON that holds to a schema."""

    json_schema: JsonSchemaDefinition


class ChatRequest(GenerationParams, kw_only=True):
    """Every field that a client may send; the ones not in ENGINE_FIELDS stay with us."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=2_048)]
    logprobs: bool | None = None
    max_completion_tokens: TokenCount | None = None
    metadata: Annotated[dict[str, Label], Meta(max_length=16)] | None = None
    modalities: Annotated[list[Literal["text"]], Meta(max_length=1)] | None = None
    parallel_tool_calls: bool | None = None
    prediction: Hint = None
    prompt_cache_key: Label | None = None
    prompt_cache_options: Hint = None
    prompt_cache_retention: Hint = None
    reasoning_effort: Effort | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    safety_identifier: Label | None = None
    service_tier: ServiceTier | None = None
    store: Literal[False] | None = None
    tool_choice: ToolChoice | None = None
    tools: Annotated[list[ChatTool], Meta(min_length=1, max_length=TOOLS_MAX)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    verbosity: Verbosity | None = None
