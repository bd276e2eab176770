"""The body of `POST /v1/chat/completions`."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from serving.contract.records import ModelRecord
from serving.gateway.schema import sampling
from serving.gateway.schema.decode import BodyDecoder, invalid
from serving.gateway.schema.json_schema import Schema, check_schema
from serving.gateway.schema.messages import Closed, FunctionName, Message, for_engine
from serving.gateway.schema.sampling import Label, Sampling, TokenCount

Description = Annotated[str, Meta(max_length=8_192)]


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


class NamedTool(Closed):
    """The choice of one tool."""

    function: Named
    type: Literal["function"]


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
    parallel_tool_calls: bool | None = None
    prompt_cache_key: Label | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    response_format: TextAnswer | JsonObjectAnswer | JsonSchemaAnswer | None = None
    safety_identifier: Label | None = None
    service_tier: Literal["auto", "default"] | None = None
    store: Literal[False] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    tools: Annotated[list[Tool], Meta(min_length=1, max_length=128)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


ENGINE_FIELDS = (
    *sampling.PASSED,
    "logprobs",
    "parallel_tool_calls",
    "reasoning_effort",
    "response_format",
    "tool_choice",
    "tools",
    "top_logprobs",
)
decode = BodyDecoder(ChatRequest)


def check(request: ChatRequest, model: ModelRecord) -> None:
    """Check what the types alone cannot. Raises BadRequest."""
    sampling.check(request, model)
    if request.top_logprobs is not None and not request.logprobs:
        raise invalid("top_logprobs", "only allowed when 'logprobs' is true")
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        raise invalid("max_tokens", "not allowed together with 'max_completion_tokens'")
    if isinstance(request.response_format, JsonSchemaAnswer):
        answer = request.response_format.json_schema
        check_schema(answer.schema, "response_format.json_schema.schema")
    for place, tool in enumerate(request.tools or ()):
        if tool.function.parameters is not None:
            check_schema(tool.function.parameters, f"tools[{place}].function.parameters")
    _check_tool_choice(request)


def _check_tool_choice(request: ChatRequest) -> None:
    names = {tool.function.name for tool in request.tools or ()}
    choice = request.tool_choice
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        raise invalid("tool_choice", "names a function that is not in 'tools'")
    if choice in ("auto", "required") and not names:
        raise invalid("tool_choice", "only allowed when 'tools' are given")


def may_call_tools(request: ChatRequest) -> bool:
    """Tell whether an engine parses the answer for tool calls."""
    return request.tools is not None and request.tool_choice != "none"


def for_engine_body(request: ChatRequest) -> dict[str, Any]:
    """Return what an engine is told, but for the fields that are the gateway's own."""
    body = sampling.passed_fields(request, ENGINE_FIELDS)
    body["messages"] = [for_engine(message) for message in request.messages]
    return body


def asked_output_tokens(request: ChatRequest) -> tuple[str, int | None]:
    """Return how many tokens the client allows, under the name it used."""
    if request.max_completion_tokens is not None:
        return "max_completion_tokens", request.max_completion_tokens
    return "max_tokens", request.max_tokens
