"""The body of `POST /v1/chat/completions`."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from serving.contract.records import ModelRecord
from serving.contract.units import Tier
from serving.engine.errors import Reason
from serving.engine.request import AnswerFormat, Feature
from serving.gateway.dialects import sampling
from serving.gateway.dialects.decode import invalid
from serving.gateway.dialects.enforceable import check_enforceable
from serving.gateway.dialects.json_schema import SchemaCheck
from serving.gateway.dialects.marking import marked_message, marked_tools
from serving.gateway.dialects.messages import (
    AssistantMessage,
    Closed,
    FunctionName,
    Hint,
    Message,
    for_engine,
)
from serving.gateway.dialects.route import Route
from serving.gateway.dialects.sampling import (
    Effort,
    Label,
    Sampling,
    ServiceTier,
    TokenCount,
    Verbosity,
)
from serving.gateway.dialects.schema_references import Schema

_encode = msgspec.json.Encoder().encode

TOOLS_MAX = 128
Description = Annotated[str, Meta(max_length=64 * 1024)]
"""Agents write whole manuals: of Claude Code the longest has 19,000 characters."""


class Function(Closed):
    """A function that the model may call."""

    name: FunctionName
    description: Description | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class Tool(Closed):
    """A tool; functions are the only kind."""

    function: Function
    type: Literal["function"]


class Named(Closed):
    """The name of a function."""

    name: FunctionName


class NamedTool(Closed, tag_field="type", tag="function"):
    """The choice of one tool."""

    function: Named


class Allowed(Closed):
    """Some of the tools, of which the model may call any or must call one."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Meta(min_length=1, max_length=TOOLS_MAX)]


class AllowedTools(Closed, tag_field="type", tag="allowed_tools"):
    """The choice of some of the tools."""

    allowed_tools: Allowed


ToolChoice = Literal["none", "auto", "required"] | NamedTool | AllowedTools


class JsonSchemaFormat(Closed):
    """A schema that the answer must hold to."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+\Z")]
    schema: Schema
    description: Description | None = None
    strict: bool | None = None


class TextAnswer(Closed, tag_field="type", tag="text"):
    """No format."""


class JsonObjectAnswer(Closed, tag_field="type", tag="json_object"):
    """Any JSON object."""


class JsonSchemaAnswer(Closed, tag_field="type", tag="json_schema"):
    """JSON that holds to a schema."""

    json_schema: JsonSchemaFormat


class ChatRequest(Sampling, kw_only=True):
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
    response_format: TextAnswer | JsonObjectAnswer | JsonSchemaAnswer | None = None
    safety_identifier: Label | None = None
    service_tier: ServiceTier | None = None
    store: Literal[False] | None = None
    tool_choice: ToolChoice | None = None
    tools: Annotated[list[Tool], Meta(min_length=1, max_length=TOOLS_MAX)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    verbosity: Verbosity | None = None


ENGINE_FIELDS = (
    *sampling.PASSED,
    "logprobs",
    "parallel_tool_calls",
    "reasoning_effort",
    "tool_choice",
    "tools",
    "top_logprobs",
)


ANY_OBJECT = {"type": "object"}
FORMAT_SCHEMA = "response_format.json_schema.schema"


class Chat(Route[ChatRequest]):
    """`POST /v1/chat/completions`."""

    name = "chat.completions"
    path = "/v1/chat/completions"
    operation = "chat"
    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    kind = ChatRequest
    prompt_field = "messages"

    def check(self, request: ChatRequest, model: ModelRecord) -> None:
        """Check what the types alone cannot. Raises BadRequest."""
        sampling.check(request, model)
        if request.top_logprobs is not None and not request.logprobs:
            raise invalid("top_logprobs", "only allowed when 'logprobs' is true")
        if request.max_tokens is not None and request.max_completion_tokens is not None:
            raise invalid("max_tokens", "not allowed together with 'max_completion_tokens'")
        _check_schemas(request)
        _check_tool_choice(request)

    def tier(self, request: ChatRequest) -> Tier | None:
        """Return the tier that the request names; `auto` leaves it to us."""
        return "default" if request.service_tier == "auto" else request.service_tier

    def feature(self, request: ChatRequest) -> Feature:
        """Return what the request puts to work in an engine beside generating."""
        if self.may_call_tools(request):
            return "tools"
        if not isinstance(request.response_format, TextAnswer | None):
            return "format"
        return "logprobs" if request.logprobs else "plain"

    def rewritten_bytes(self, request: ChatRequest) -> int:
        """Return how many bytes of JSON a chat template writes anew, with blanks between: tools,
        and what the arguments of earlier calls say."""
        tools = 0 if request.tools is None else len(_encode(request.tools))
        return tools + sum(
            len(call.function.arguments.encode(errors="replace"))
            for message in request.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls or ()
        )

    def has_schemas(self, request: ChatRequest) -> bool:
        """Tell whether the request brings JSON Schemas."""
        return request.tools is not None or isinstance(request.response_format, JsonSchemaAnswer)

    def needs(self, request: ChatRequest) -> dict[str, Reason]:
        """Return the features that the engine must have, and as what their lack is refused."""
        needs: dict[str, Reason] = {}
        if isinstance(request.tool_choice, NamedTool):
            # The call's arguments are all that is said, in a format: nobody looks for a call.
            needs["json_schema"] = "tools"
        elif self.may_call_tools(request):
            needs["tools"] = "tools"
        if not isinstance(request.response_format, TextAnswer | None):
            needs["json_schema"] = "format"
        if request.logprobs:
            needs["logprobs"] = "logprobs"
        return needs

    def compiled_schemas(self, request: ChatRequest) -> dict[str, Schema]:
        """Return the answer's format, and what the arguments of forced and strict calls must hold
        to. Other tools are not compiled."""
        schemas = {
            f"tools[{place}].function.parameters": tool.function.parameters
            for place, tool in compiled_tools(request)
            if tool.function.parameters is not None
        }
        if isinstance(request.response_format, JsonSchemaAnswer) and not forced_tools(request):
            schemas[FORMAT_SCHEMA] = request.response_format.json_schema.schema
        return schemas

    def answer_format(self, request: ChatRequest) -> AnswerFormat | None:
        """Return what the answer is held to, unless the model has to call tools instead."""
        asked = request.response_format
        if forced_tools(request) or isinstance(asked, TextAnswer | None):
            return None
        schema = asked.json_schema.schema if isinstance(asked, JsonSchemaAnswer) else ANY_OBJECT
        return AnswerFormat(msgspec.json.encode(asked), msgspec.json.encode(schema))

    def engine_fields(self, request: ChatRequest) -> dict[str, Any]:
        """Return what an engine is told, but for the fields that are the gateway's own: the prompt
        first, as templates order it, so that turns of a conversation begin alike."""
        fields: dict[str, Any] = {} if request.tools is None else {"tools": request.tools}
        fields["messages"] = [marked_message(for_engine(message)) for message in request.messages]
        fields |= sampling.passed_fields(request, ENGINE_FIELDS)
        if isinstance(request.tool_choice, AllowedTools):
            fields |= _allowed(request.tool_choice.allowed_tools, request.tools or [])
        if request.tools is not None:
            fields["tools"] = marked_tools(fields["tools"])
        return fields

    def asked_output_tokens(self, request: ChatRequest) -> tuple[str, int | None]:
        """Return how many tokens the client allows, under the name it used."""
        if request.max_completion_tokens is not None:
            return "max_completion_tokens", request.max_completion_tokens
        return "max_tokens", request.max_tokens

    def may_call_tools(self, request: ChatRequest) -> bool:
        """Tell whether an engine parses the answer for tool calls."""
        return request.tools is not None and request.tool_choice != "none"


Places = list[tuple[int, Tool]]
"""Tools, each with its place in the request."""


def forced_tools(request: ChatRequest) -> Places:
    """Return the tools that the model must choose from."""
    choice = request.tool_choice
    if isinstance(choice, AllowedTools):
        return _offered(request) if choice.allowed_tools.mode == "required" else []
    is_forced = choice == "required" or isinstance(choice, NamedTool)
    return _offered(request) if is_forced else []


def compiled_tools(request: ChatRequest) -> Places:
    """Return the tools whose schemas an engine compiles: forced ones and strict ones."""
    forced = forced_tools(request)
    return forced or [(n, tool) for n, tool in _offered(request) if tool.function.strict]


def _offered(request: ChatRequest) -> Places:
    """Return the tools that the choice leaves the model."""
    tools, named = list(enumerate(request.tools or ())), _named(request.tool_choice)
    if request.tool_choice == "none":
        return []
    return [(n, tool) for n, tool in tools if tool.function.name in named] if named else tools


def _check_schemas(request: ChatRequest) -> None:
    schemas = SchemaCheck()
    if isinstance(request.response_format, JsonSchemaAnswer):
        answer = request.response_format.json_schema
        schemas.check(answer.schema, FORMAT_SCHEMA)
        check_enforceable(answer.schema, FORMAT_SCHEMA)
    compiled = {place for place, _ in compiled_tools(request)}
    for place, tool in enumerate(request.tools or ()):
        if tool.function.parameters is not None:
            param = f"tools[{place}].function.parameters"
            schemas.check(tool.function.parameters, param, is_compiled=place in compiled)


def _check_tool_choice(request: ChatRequest) -> None:
    names = {tool.function.name for tool in request.tools or ()}
    choice = request.tool_choice
    if missing := _named(choice) - names:
        raise invalid("tool_choice", "names a function that is not in 'tools'", min(missing))
    if choice in ("auto", "required") and not names:
        raise invalid("tool_choice", "only allowed when 'tools' are given", choice)


def _named(choice: ToolChoice | None) -> set[str]:
    """Return the functions that a choice of tools names."""
    if isinstance(choice, NamedTool):
        return {choice.function.name}
    if isinstance(choice, AllowedTools):
        return {tool.function.name for tool in choice.allowed_tools.tools}
    return set()


def _allowed(allowed: Allowed, tools: list[Tool]) -> dict[str, Any]:
    """Return the tools and the choice as engines know them, which have no word for some of them."""
    names = {tool.function.name for tool in allowed.tools}
    kept = [tool for tool in tools if tool.function.name in names]
    return {"tools": kept, "tool_choice": allowed.mode}
