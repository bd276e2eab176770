"""From a body of Responses to one of chat, which says the same."""

from collections.abc import Iterable

from serving.gateway.dialects import chat
from serving.gateway.dialects.decode import invalid
from serving.gateway.dialects.messages import (
    AssistantMessage,
    DeveloperMessage,
    FunctionCall,
    Message,
    SystemMessage,
    Text,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from serving.gateway.dialects.responses.items import (
    CustomToolCallItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputText,
    Item,
    MessageItem,
    OutputText,
    ReasoningItem,
    Refusal,
)
from serving.gateway.dialects.responses.request import (
    LOGPROBS,
    AllowedTools,
    JsonObject,
    JsonSchema,
    NamedCustom,
    NamedFunction,
    ResponsesRequest,
    ToolChoice,
)
from serving.gateway.dialects.responses.tools import Tools, arguments_of, for_chat, name_of

NAMED = ("function", "custom")
"""Tools to choose from that are not left out."""
_SPEAKERS: dict[str, type[UserMessage | SystemMessage | DeveloperMessage]] = {
    "user": UserMessage,
    "system": SystemMessage,
    "developer": DeveloperMessage,
}


def lower(request: ResponsesRequest, items: Iterable[Item], tools: Tools) -> chat.ChatRequest:
    """Return the chat that asks for the same; `items` are those of the input, read.

    Raises BadRequest where nothing is left of the tools that must be called.
    """
    wants_logprobs = request.top_logprobs is not None or LOGPROBS in (request.include or ())
    return chat.ChatRequest(
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
        if isinstance(item, MessageItem) and item.role != "assistant":
            messages.append(_SPEAKERS[item.role](content=_text(item)))
            turn = None
        elif isinstance(item, FunctionCallOutputItem):
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
    if isinstance(item, FunctionCallItem | CustomToolCallItem):
        return False
    return turn.content is not None or turn.refusal is not None or turn.tool_calls is not None


def _add(item: Item, turn: AssistantMessage) -> None:
    if isinstance(item, ReasoningItem):
        thoughts = "".join(part.text for part in item.content or ())
        turn.reasoning = (turn.reasoning or "") + thoughts or None
    elif isinstance(item, FunctionCallItem):
        _add_call(turn, item.call_id, name_of(item.name, item.namespace), item.arguments)
    elif isinstance(item, CustomToolCallItem):
        name = name_of(item.name, item.namespace)
        _add_call(turn, item.call_id, name, arguments_of(item.input))
    elif isinstance(item, MessageItem):
        if isinstance(item.content, str):
            turn.content = item.content
            return
        said = [part.text for part in item.content if isinstance(part, InputText | OutputText)]
        refused = [part.refusal for part in item.content if isinstance(part, Refusal)]
        turn.content = "".join(said) if said or not refused else None
        turn.refusal = "".join(refused) or None


def _add_call(turn: AssistantMessage, call_id: str, name: str, arguments: str) -> None:
    call = ToolCall(call_id, FunctionCall(name, arguments))
    turn.tool_calls = [*(turn.tool_calls or ()), call]


def _text(item: MessageItem) -> Text:
    if isinstance(item.content, str):
        return item.content
    parts = [part.refusal if isinstance(part, Refusal) else part.text for part in item.content]
    return parts[0] if len(parts) == 1 else [TextPart(text) for text in parts]


def _output(item: FunctionCallOutputItem) -> Text:
    if isinstance(item.output, str):
        return item.output
    return [TextPart(part.text) for part in item.output]


def _tool_choice(choice: ToolChoice | None, tools: Tools) -> chat.ToolChoice | None:
    """Return the choice among what is left of the tools."""
    if isinstance(choice, AllowedTools):
        names = [tool.name for tool in choice.tools if tool.type in NAMED and tool.name]
        if names:
            return chat.AllowedTools(chat.Allowed(choice.mode, [_named(n, tools) for n in names]))
        choice = "none" if choice.mode == "auto" else choice.mode
    elif isinstance(choice, NamedFunction | NamedCustom):
        return _named(choice.name, tools)
    if choice == "required" and not tools.offered and tools.omitted:
        left_out = ", ".join(tools.omitted)
        raise invalid("tool_choice", f"'required', but no tool is left: {left_out} cannot run here")
    return choice if tools.offered else None


def _named(name: str, tools: Tools) -> chat.NamedTool:
    return chat.NamedTool(chat.Named(tools.named(name)))


def _response_format(
    request: ResponsesRequest,
) -> chat.JsonObjectAnswer | chat.JsonSchemaAnswer | None:
    wanted = request.text.format if request.text else None
    if isinstance(wanted, JsonObject):
        return chat.JsonObjectAnswer()
    if isinstance(wanted, JsonSchema):
        return chat.JsonSchemaAnswer(
            chat.JsonSchemaFormat(wanted.name, wanted.schema, wanted.description, wanted.strict)
        )
    return None
