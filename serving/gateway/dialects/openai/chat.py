"""`POST /v1/chat/completions`, and what completions shares with it: from a body to a request,
and from events to an answer."""

import hashlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from serving.contract.prompt import bytes_of_prompt
from serving.contract.records import ModelRecord, Task
from serving.contract.units import Tier
from serving.engine.errors import ControlToken, PromptLength, Reason, RequestRejected
from serving.engine.request import AnswerFormat, EngineRequest, Feature, Operation, RequestGrammars
from serving.gateway.dialects import validation
from serving.gateway.dialects.base import InferenceRequest, Renderer
from serving.gateway.dialects.json_schema import Schema, SchemaValidator, check_enforceable
from serving.gateway.dialects.marking import marked_message, marked_tools, unmarked_words
from serving.gateway.dialects.openai import chat_request, envelope
from serving.gateway.dialects.openai.chat_request import (
    AllowedToolsChoice,
    AllowedToolSet,
    AssistantMessage,
    ChatRequest,
    ChatTool,
    GenerationParams,
    JsonSchemaFormat,
    NamedToolChoice,
    TextFormat,
    ToolChoice,
    for_engine,
)
from serving.gateway.dialects.openai.render import ChunkStreamRenderer, CompletionRenderer
from serving.gateway.dialects.validation import ContextExceeded, StrictDecoder, invalid
from serving.gateway.errors import ApiError, BadRequest

_encode = msgspec.json.Encoder().encode

Request = TypeVar("Request", bound=GenerationParams)


class TextGenerationDialect(envelope.OpenAIEnvelope, ABC, Generic[Request]):
    """A `Dialect` of OpenAI's."""

    name: ClassVar[str]
    path: ClassVar[str]
    task: ClassVar[Task] = "generate"
    operation: ClassVar[Operation]
    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]
    kind: ClassVar[type[GenerationParams]]
    prompt_field: ClassVar[str]

    def __init__(self) -> None:
        self._decode = StrictDecoder(self.kind)

    def decode(self, data: bytes) -> Any:
        """Return the body. Raises BadRequest."""
        return self._decode(data)

    def inference(
        self, request: Request, *, body_bytes: int, model: ModelRecord
    ) -> InferenceRequest:
        """Check the body against its model and return the request that it is. Raises BadRequest."""
        self.check(request, model)
        options = request.stream_options
        prompts, tier = self.prompt_count(request), self.tier(request)
        fields = self.engine_fields(request)
        encoded = _encode(fields)[:-1]
        is_chat = self.operation == "chat"
        engine_request = EngineRequest(
            operation=self.operation,
            fields=(encoded,),
            is_streamed=bool(request.stream),
            may_call_tools=self.may_call_tools(request),
            feature=self.feature(request),
            choices=prompts * (request.n or 1),
            prompts=prompts,
            output_tokens_max=self._output_tokens(request, model),
            needs=self.needs(request),
            grammars=grammars_of(self.compiled_schemas(request)),
            answer_format=self.answer_format(request),
            tool_words=unmarked_words(fields["tools"]) if "tools" in fields else (),
        )
        return InferenceRequest(
            dialect=self,
            model=model,
            model_name=request.model,
            engine_request=engine_request,
            include_usage=bool(options and options.include_usage),
            body_bytes=body_bytes,
            prompt=bytes_of_prompt(
                encoded, texts=0 if is_chat else prompts, again=self.rewritten_bytes(request)
            ),
            requested_output_tokens=self.asked_output_tokens(request)[1],
            tier=tier or "default",
            echo=tier,
        )

    def renderer(self, inference: InferenceRequest, request_id: str) -> Renderer:
        """Return how the answer is told."""
        id_ = self.id_prefix + request_id
        if inference.engine_request.is_streamed:
            return ChunkStreamRenderer(inference, id_, self.chunk_object)
        return CompletionRenderer(inference, id_, self.whole_object)

    def rejection(self, rejected: RequestRejected, inference: InferenceRequest) -> ApiError:
        """Return what is told of a request that the engine refuses."""
        if isinstance(rejected, ControlToken):
            return validation.control_token(rejected)
        if rejected.reason != "context":
            return validation.refused(rejected.reason)
        return ContextExceeded(
            inference.model.context_tokens,
            prompt=rejected.prompt,
            requested_output_tokens=inference.requested_output_tokens,
            param=self.prompt_field,
        )

    @abstractmethod
    def check(self, request: Request, model: ModelRecord) -> None:
        """Check what the types alone cannot. Raises BadRequest."""

    @abstractmethod
    def engine_fields(self, request: Request) -> dict[str, Any]:
        """Return what an engine is told, but for the fields that are the gateway's own."""

    @abstractmethod
    def asked_output_tokens(self, request: Request) -> tuple[str, int | None]:
        """Return how many tokens the client allows, under the name it used."""

    def tier(self, request: Request) -> Tier | None:
        """Return the tier that the request names."""
        return None

    def prompt_count(self, request: Request) -> int:
        """Return how many prompts the body carries."""
        return 1

    def known_prompt_tokens(self, request: Request) -> int:
        """Return the prompt's length where the client counted tokens itself, else 0."""
        return 0

    def rewritten_bytes(self, request: Request) -> int:
        """Return how many bytes of JSON a chat template writes anew, with blanks between."""
        return 0

    def has_schemas(self, request: Request) -> bool:
        """Tell whether the request brings JSON Schemas: what they cost is not in their length."""
        return False

    def needs(self, request: Request) -> dict[str, Reason]:
        """Return the features that the engine must have, and as what their lack is refused."""
        return {}

    def compiled_schemas(self, request: Request) -> dict[str, Schema]:
        """Return the schemas that an engine compiles, by their fields' names."""
        return {}

    def answer_format(self, request: Request) -> AnswerFormat | None:
        """Return what the answer is held to, if anything."""
        return None

    @abstractmethod
    def feature(self, request: Request) -> Feature:
        """Return what the request puts to work in an engine beside generating."""

    def may_call_tools(self, request: Request) -> bool:
        """Tell whether an engine parses the answer for tool calls."""
        return False

    def _output_tokens(self, request: Request, model: ModelRecord) -> int:
        """Return the `max_tokens` for the engine, which cuts it to what the context leaves."""
        name, asked = self.asked_output_tokens(request)
        known = self.known_prompt_tokens(request)
        if known + (asked or 1) > model.context_tokens:
            raise ContextExceeded(
                model.context_tokens,
                prompt=PromptLength(known, is_least=False) if known else None,
                requested_output_tokens=asked,
                param=self.prompt_field if known else name,
            )
        if asked is not None and asked > model.output_tokens_max:
            raise _beyond(name, model.output_tokens_max, asked)
        output_tokens = model.output_tokens_max if asked is None else asked
        if request.min_tokens is not None and request.min_tokens > output_tokens:
            raise invalid("min_tokens", f"at most {output_tokens}", request.min_tokens)
        return output_tokens


def grammars_of(schemas: dict[str, Schema]) -> RequestGrammars | None:
    """Return schemas as they are asked about."""
    if not schemas:
        return None
    texts = [_encode(schema) for schema in schemas.values()]
    digest = hashlib.sha256(b"\n".join(texts)).digest()
    return RequestGrammars(tuple(schemas), tuple(text.decode() for text in texts), digest)


def _beyond(name: str, tokens: int, asked: int) -> BadRequest:
    return invalid(name, f"this model gives at most {tokens} tokens", asked)


ENGINE_FIELDS = (
    *chat_request.PASSED,
    "logprobs",
    "parallel_tool_calls",
    "reasoning_effort",
    "tool_choice",
    "tools",
    "top_logprobs",
)
passed_fields = chat_request.PassedFields(ENGINE_FIELDS)


ANY_OBJECT = {"type": "object"}
FORMAT_SCHEMA = "response_format.json_schema.schema"


class ChatDialect(TextGenerationDialect[ChatRequest]):
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
        chat_request.check(request, model)
        if request.top_logprobs is not None and not request.logprobs:
            raise invalid("top_logprobs", "only allowed when 'logprobs' is true")
        if request.max_tokens is not None and request.max_completion_tokens is not None:
            raise invalid("max_tokens", "not allowed together with 'max_completion_tokens'")
        if not is_plain(request):
            _check_schemas(request)
            _check_tool_choice(request)

    def tier(self, request: ChatRequest) -> Tier | None:
        """Return the tier that the request names; `auto` leaves it to us."""
        return "default" if request.service_tier == "auto" else request.service_tier

    def feature(self, request: ChatRequest) -> Feature:
        """Return what the request puts to work in an engine beside generating."""
        if self.may_call_tools(request):
            return "tools"
        if not isinstance(request.response_format, TextFormat | None):
            return "format"
        return "logprobs" if request.logprobs else "plain"

    def rewritten_bytes(self, request: ChatRequest) -> int:
        """Return how many bytes of JSON a chat template writes anew, with blanks between: tools,
        and what the arguments of earlier calls say."""
        size = 0 if request.tools is None else len(_encode(request.tools))
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                for call in message.tool_calls or ():
                    size += len(call.function.arguments.encode(errors="replace"))
        return size

    def has_schemas(self, request: ChatRequest) -> bool:
        """Tell whether the request brings JSON Schemas."""
        return request.tools is not None or isinstance(request.response_format, JsonSchemaFormat)

    def needs(self, request: ChatRequest) -> dict[str, Reason]:
        """Return the features that the engine must have, and as what their lack is refused."""
        needs: dict[str, Reason] = {}
        if isinstance(request.tool_choice, NamedToolChoice):
            # The call's arguments are all that is said, in a format: nobody looks for a call.
            needs["json_schema"] = "tools"
        elif self.may_call_tools(request):
            needs["tools"] = "tools"
        if not isinstance(request.response_format, TextFormat | None):
            needs["json_schema"] = "format"
        if request.logprobs:
            needs["logprobs"] = "logprobs"
        return needs

    def compiled_schemas(self, request: ChatRequest) -> dict[str, Schema]:
        """Return the answer's format, and what the arguments of forced and strict calls must hold
        to. Other tools are not compiled."""
        if is_plain(request):
            return {}
        schemas = {
            f"tools[{place}].function.parameters": tool.function.parameters
            for place, tool in compiled_tools(request)
            if tool.function.parameters is not None
        }
        if isinstance(request.response_format, JsonSchemaFormat) and not forced_tools(request):
            schemas[FORMAT_SCHEMA] = request.response_format.json_schema.schema
        return schemas

    def answer_format(self, request: ChatRequest) -> AnswerFormat | None:
        """Return what the answer is held to, unless the model has to call tools instead."""
        asked = request.response_format
        if asked is None:
            return None
        if forced_tools(request) or isinstance(asked, TextFormat | None):
            return None
        schema = asked.json_schema.schema if isinstance(asked, JsonSchemaFormat) else ANY_OBJECT
        return AnswerFormat(msgspec.json.encode(asked), msgspec.json.encode(schema))

    def engine_fields(self, request: ChatRequest) -> dict[str, Any]:
        """Return what an engine is told, but for the fields that are the gateway's own: the prompt
        first, as templates order it, so that turns of a conversation begin alike."""
        fields: dict[str, Any] = {} if request.tools is None else {"tools": request.tools}
        fields["messages"] = [marked_message(for_engine(message)) for message in request.messages]
        fields |= passed_fields(request)
        if isinstance(request.tool_choice, AllowedToolsChoice):
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


def is_plain(request: ChatRequest) -> bool:
    """Tell whether a chat has neither tools nor a format, as most."""
    return request.tools is None and request.tool_choice is None and request.response_format is None


Places = list[tuple[int, ChatTool]]
"""Tools, each with its place in the request."""


def forced_tools(request: ChatRequest) -> Places:
    """Return the tools that the model must choose from."""
    choice = request.tool_choice
    if isinstance(choice, AllowedToolsChoice):
        return _offered(request) if choice.allowed_tools.mode == "required" else []
    is_forced = choice == "required" or isinstance(choice, NamedToolChoice)
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
    schemas = SchemaValidator()
    if isinstance(request.response_format, JsonSchemaFormat):
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
    if isinstance(choice, NamedToolChoice):
        return {choice.function.name}
    if isinstance(choice, AllowedToolsChoice):
        return {tool.function.name for tool in choice.allowed_tools.tools}
    return set()


def _allowed(allowed: AllowedToolSet, tools: list[ChatTool]) -> dict[str, Any]:
    """Return the tools and the choice as engines know them, which have no word for some of them."""
    names = {tool.function.name for tool in allowed.tools}
    kept = [tool for tool in tools if tool.function.name in names]
    return {"tools": kept, "tool_choice": allowed.mode}
