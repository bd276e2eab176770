"""From a body of Responses to one of chat, which says the same."""

from collections.abc import Iterable

from serving.gateway.dialects import chat
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
    AllowedFunctions,
    FunctionTool,
    JsonObject,
    JsonSchema,
    NamedFunction,
    ResponsesRequest,
)

_SPEAKERS: dict[str, type[UserMessage | SystemMessage | DeveloperMessage]] = {
    "user": UserMessage,
    "system": SystemMessage,
    "developer": DeveloperMessage,
}


def lower(request: ResponsesRequest, items: Iterable[Item]) -> chat.ChatRequest:
    """Return the chat that asks for the same; `items` are those of the input, read."""
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
        tool_choice=_tool_choice(request.tool_choice) if request.tools else None,
        tools=[_tool(tool) for tool in request.tools or ()] or None,
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
    if isinstance(item, FunctionCallItem):
        return False
    return turn.content is not None or turn.refusal is not None or turn.tool_calls is not None


def _add(item: Item, turn: AssistantMessage) -> None:
    if isinstance(item, ReasoningItem):
        thoughts = "".join(part.text for part in item.content or ())
        turn.reasoning = (turn.reasoning or "") + thoughts or None
    elif isinstance(item, FunctionCallItem):
        call = ToolCall(item.call_id, FunctionCall(item.name, item.arguments))
        turn.tool_calls = [*(turn.tool_calls or ()), call]
    elif isinstance(item, MessageItem):
        if isinstance(item.content, str):
            turn.content = item.content
            return
        said = [part.text for part in item.content if isinstance(part, InputText | OutputText)]
        refused = [part.refusal for part in item.content if isinstance(part, Refusal)]
        turn.content = "".join(said) if said or not refused else None
        turn.refusal = "".join(refused) or None


def _text(item: MessageItem) -> Text:
    if isinstance(item.content, str):
        return item.content
    parts = [part.refusal if isinstance(part, Refusal) else part.text for part in item.content]
    return parts[0] if len(parts) == 1 else [TextPart(text) for text in parts]


def _output(item: FunctionCallOutputItem) -> Text:
    if isinstance(item.output, str):
        return item.output
    return [TextPart(part.text) for part in item.output]


def _tool(tool: FunctionTool) -> chat.Tool:
    function = chat.Function(tool.name, tool.description, tool.parameters, tool.strict)
    return chat.Tool(function, "function")


def _tool_choice(
    choice: str | NamedFunction | AllowedFunctions | None,
) -> chat.ToolChoice | None:
    if isinstance(choice, NamedFunction):
        return chat.NamedTool(chat.Named(choice.name))
    if isinstance(choice, AllowedFunctions):
        tools = [chat.NamedTool(chat.Named(tool.name)) for tool in choice.tools]
        return chat.AllowedTools(chat.Allowed(choice.mode, tools))
    return choice  # type: ignore[return-value]


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
