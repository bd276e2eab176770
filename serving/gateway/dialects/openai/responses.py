"""`POST /v1/responses`, translated to a chat that says the same."""

import re
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from serving.contract.records import ModelRecord, Task
from serving.engine.errors import RequestRejected
from serving.gateway.dialects.base import InferenceRequest, Renderer
from serving.gateway.dialects.openai import chat_request, envelope
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.chat_request import (
    AssistantMessage,
    ChatFunctionCall,
    ChatToolCall,
    DeveloperMessage,
    Message,
    SystemMessage,
    Text,
    TextPart,
    ToolMessage,
    UserMessage,
)
from serving.gateway.dialects.openai.responses_render import (
    ResponseRenderer,
    ResponseStreamRenderer,
)
from serving.gateway.dialects.openai.responses_request import (
    LOGPROBS,
    AllowedFunctionsChoice,
    CustomToolCallItem,
    FunctionCallItemParam,
    FunctionCallOutputParam,
    InputTextParam,
    Item,
    MessageItemParam,
    NamedCustom,
    NamedFunctionChoice,
    OutputTextParam,
    ReasoningItemParam,
    RefusalParam,
    ResponsesJsonObjectFormat,
    ResponsesJsonSchemaFormat,
    ResponsesRequest,
    ToolChoice,
    asked_of,
    check,
    read_items,
)
from serving.gateway.dialects.openai.responses_tools import (
    Tools,
    arguments_of,
    for_chat,
    name_of,
    read_tools,
)
from serving.gateway.dialects.validation import Names, StrictDecoder, invalid, renamed, with_names
from serving.gateway.errors import ApiError, BadRequest

NAMED = ("function", "custom")
"""Tools to choose from that are not left out."""
_SPEAKERS: dict[str, type[UserMessage | SystemMessage | DeveloperMessage]] = {
    "user": UserMessage,
    "system": SystemMessage,
    "developer": DeveloperMessage,
}


def lower(
    request: ResponsesRequest, items: Iterable[Item], tools: Tools
) -> chat_request.ChatRequest:
    """Return the chat that asks for the same; `items` are those of the input, read.

    Raises BadRequest where nothing is left of the tools that must be called.
    """
    wants_logprobs = request.top_logprobs is not None or LOGPROBS in (request.include or ())
    return chat_request.ChatRequest(
        model=request.model,
        messages=_messages(request, items),
        logprobs=wants_logprobs or None,
        max_tokens=request.max_output_tokens,
        metadata=request.metadata,
        parallel_tool_calls=request.parallel_tool_calls,
        reasoning_effort=request.reasoning.effort if request.reasoning else None,
        response_format=_response_format(request),
        service_tier=request.service_tier,
        stream=request.stream,
        temperature=request.temperature,
        tool_choice=_tool_choice(request.tool_choice, tools),
        tools=[for_chat(one) for one in tools.offered] or None,
        top_logprobs=request.top_logprobs,
        top_p=request.top_p,
    )


def _messages(request: ResponsesRequest, items: Iterable[Item]) -> list[Message]:
    messages: list[Message] = []
    if request.instructions is not None:
        messages.append(SystemMessage(content=request.instructions))
    if isinstance(request.input, str):
        messages.append(UserMessage(content=request.input))
    turn: AssistantMessage | None = None
    for item in items:
        if isinstance(item, MessageItemParam) and item.role != "assistant":
            messages.append(_SPEAKERS[item.role](content=_text(item)))
            turn = None
        elif isinstance(item, FunctionCallOutputParam):
            messages.append(ToolMessage(content=_output(item), tool_call_id=item.call_id))
            turn = None
        else:
            if turn is None or _begins_anew(item, turn):
                turn = AssistantMessage()
                messages.append(turn)
            _add(item, turn)
    return messages


def _begins_anew(item: Item, turn: AssistantMessage) -> bool:
    """Tell whether an item cannot belong to a turn: it thinks, speaks, then calls."""
    if isinstance(item, FunctionCallItemParam | CustomToolCallItem):
        return False
    return turn.content is not None or turn.refusal is not None or turn.tool_calls is not None


def _add(item: Item, turn: AssistantMessage) -> None:
    if isinstance(item, ReasoningItemParam):
        thoughts = "".join(part.text for part in item.content or ())
        turn.reasoning = (turn.reasoning or "") + thoughts or None
    elif isinstance(item, FunctionCallItemParam):
        _add_call(turn, item.call_id, name_of(item.name, item.namespace), item.arguments)
    elif isinstance(item, CustomToolCallItem):
        name = name_of(item.name, item.namespace)
        _add_call(turn, item.call_id, name, arguments_of(item.input))
    elif isinstance(item, MessageItemParam):
        if isinstance(item.content, str):
            turn.content = item.content
            return
        said = [
            part.text for part in item.content if isinstance(part, InputTextParam | OutputTextParam)
        ]
        refused = [part.refusal for part in item.content if isinstance(part, RefusalParam)]
        turn.content = "".join(said) if said or not refused else None
        turn.refusal = "".join(refused) or None


def _add_call(turn: AssistantMessage, call_id: str, name: str, arguments: str) -> None:
    call = ChatToolCall(call_id, ChatFunctionCall(name, arguments))
    turn.tool_calls = [*(turn.tool_calls or ()), call]


def _text(item: MessageItemParam) -> Text:
    if isinstance(item.content, str):
        return item.content
    parts = [part.refusal if isinstance(part, RefusalParam) else part.text for part in item.content]
    return parts[0] if len(parts) == 1 else [TextPart(text) for text in parts]


def _output(item: FunctionCallOutputParam) -> Text:
    if isinstance(item.output, str):
        return item.output
    return [TextPart(part.text) for part in item.output]


def _tool_choice(choice: ToolChoice | None, tools: Tools) -> chat_request.ToolChoice | None:
    """Return the choice among what is left of the tools."""
    if isinstance(choice, AllowedFunctionsChoice):
        names = [tool.name for tool in choice.tools if tool.type in NAMED and tool.name]
        if names:
            return chat_request.AllowedToolsChoice(
                chat_request.AllowedToolSet(choice.mode, [_named(n, tools) for n in names])
            )
        choice = "none" if choice.mode == "auto" else choice.mode
    elif isinstance(choice, NamedFunctionChoice | NamedCustom):
        return _named(choice.name, tools)
    if choice == "required" and not tools.offered and tools.omitted:
        left_out = ", ".join(tools.omitted)
        raise invalid("tool_choice", f"'required', but no tool is left: {left_out} cannot run here")
    return choice if tools.offered else None


def _named(name: str, tools: Tools) -> chat_request.NamedToolChoice:
    return chat_request.NamedToolChoice(chat_request.FunctionReference(tools.named(name)))


def _response_format(
    request: ResponsesRequest,
) -> chat_request.JsonObjectFormat | chat_request.JsonSchemaFormat | None:
    wanted = request.text.format if request.text else None
    if isinstance(wanted, ResponsesJsonObjectFormat):
        return chat_request.JsonObjectFormat()
    if isinstance(wanted, ResponsesJsonSchemaFormat):
        return chat_request.JsonSchemaFormat(
            chat_request.JsonSchemaDefinition(
                wanted.name, wanted.schema, wanted.description, wanted.strict
            )
        )
    return None


NAMES: Names = (
    (re.compile(r"^messages"), "input"),
    (re.compile(r"^max_tokens"), "max_output_tokens"),
    (re.compile(r"^logprobs"), "include"),
    (re.compile(r"^response_format(\.json_schema)?"), "text.format"),
)
_TOOL = re.compile(r"^tools\[(\d+)\](\.function)?")


class ResponsesDialect(envelope.OpenAIEnvelope):
    """A dialect that is lowered to chat."""

    name: ClassVar[str] = "responses"
    path: ClassVar[str] = "/v1/responses"
    task: ClassVar[Task] = "generate"

    def __init__(self) -> None:
        self._decode = StrictDecoder(ResponsesRequest)
        self._chat = ChatDialect()

    def decode(self, data: bytes) -> Any:
        """Return the body, its items read. Raises BadRequest."""
        request: Any = self._decode(data)
        check(request)
        read: dict[str, Any] = {"tools": read_tools(request.tools or ())}
        if isinstance(request.input, list):
            read["input"] = read_items(request.input)
        return msgspec.structs.replace(request, **read)

    def has_schemas(self, request: ResponsesRequest) -> bool:
        """Tell whether the request brings JSON Schemas."""
        tools: Any = request.tools
        return bool(tools.offered) or request.text is not None

    def inference(
        self, request: ResponsesRequest, *, body_bytes: int, model: ModelRecord
    ) -> InferenceRequest:
        """Check the body against its model and return the request that it is. Raises BadRequest."""
        items: Any = request.input if isinstance(request.input, list) else []
        tools: Any = request.tools
        names = (*NAMES, (_TOOL, lambda found: tools.offered[int(found[1])].place))
        try:
            lowered = lower(request, items, tools)
            inference = self._chat.inference(lowered, body_bytes=body_bytes, model=model)
        except BadRequest as error:
            raise renamed(error, names) from None
        engine_request = with_names(inference.engine_request, names)
        return replace(
            inference, dialect=self, engine_request=engine_request, echo=asked_of(request, tools)
        )

    def renderer(self, inference: InferenceRequest, request_id: str) -> Renderer:
        """Return how the answer is told."""
        return (
            ResponseStreamRenderer if inference.engine_request.is_streamed else ResponseRenderer
        )(inference, request_id)

    def rejection(self, rejected: RequestRejected, inference: InferenceRequest) -> ApiError:
        """Return what is told of a request that the engine refuses."""
        return renamed(self._chat.rejection(rejected, inference), NAMES)
