"""The body of `POST /v1/responses`."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from serving.gateway.dialects.chat import TOOLS_MAX, Description
from serving.gateway.dialects.decode import invalid
from serving.gateway.dialects.messages import Closed, FunctionName, Hint
from serving.gateway.dialects.responses.items import ITEMS_MAX
from serving.gateway.dialects.sampling import (
    Effort,
    Label,
    ServiceTier,
    TokenCount,
    Verbosity,
)
from serving.gateway.dialects.schema_references import Schema

Includable = Literal["reasoning.encrypted_content", "message.output_text.logprobs"]
LOGPROBS: Includable = "message.output_text.logprobs"


class NamedFunction(Closed, tag_field="type", tag="function"):
    """The choice of one function."""

    name: FunctionName


class NamedCustom(Closed, tag_field="type", tag="custom"):
    """The choice of one custom tool."""

    name: FunctionName


class AllowedTool(msgspec.Struct):
    """One of the tools to choose from; those that are left out have no name."""

    type: str
    name: str | None = None


class AllowedTools(Closed, tag_field="type", tag="allowed_tools"):
    """The choice of some of the tools."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedTool], Meta(min_length=1, max_length=TOOLS_MAX)]


ToolChoice = Literal["none", "auto", "required"] | NamedFunction | NamedCustom | AllowedTools


class PlainText(Closed, tag_field="type", tag="text"):
    """No format."""


class JsonObject(Closed, tag_field="type", tag="json_object"):
    """Any JSON object."""


class JsonSchema(Closed, tag_field="type", tag="json_schema"):
    """JSON that holds to a schema."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+\Z")]
    schema: Schema
    description: Description | None = None
    strict: bool | None = None


class TextOptions(Closed):
    """How the text should be."""

    format: PlainText | JsonObject | JsonSchema | None = None
    verbosity: Verbosity | None = None


class Reasoning(Closed):
    """How hard the model should think; its thoughts are told as they are, not summed up."""

    effort: Effort | None = None
    context: Literal["auto"] | None = None
    mode: Literal["standard"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class StreamOptions(Closed):
    """What a stream tells besides its text."""

    include_obfuscation: bool | None = None


class ResponsesRequest(Closed, kw_only=True):
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
    reasoning: Reasoning | None = None
    safety_identifier: Label | None = None
    service_tier: ServiceTier | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
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
