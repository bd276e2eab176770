"""From a body of Messages to one of chat, which says the same."""

from typing import Any

import msgspec

from serving.gateway.dialects import chat
from serving.gateway.dialects.anthropic.blocks import (
    Block,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Turn,
)
from serving.gateway.dialects.anthropic.request import (
    AnyChoice,
    AutoChoice,
    Choice,
    CountRequest,
    NoChoice,
    OutputConfig,
    ToolChoice,
)
from serving.gateway.dialects.messages import (
    AssistantMessage,
    FunctionCall,
    Message,
    SystemMessage,
    Text,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)


def lower(request: CountRequest) -> chat.ChatRequest:
    """Return the chat that asks for the same."""
    tools = [
        chat.Tool(
            chat.Function(tool.name, tool.description, tool.input_schema, tool.strict), "function"
        )
        for tool in request.tools or ()
    ]
    config = request.output_config
    return chat.ChatRequest(
        model=request.model,
        messages=_messages(request),
        max_tokens=getattr(request, "max_tokens", None),
        parallel_tool_calls=_may_call_several(request.tool_choice),
        reasoning_effort=config.effort if config else None,
        response_format=_response_format(config),
        stop=getattr(request, "stop_sequences", None),
        stream=getattr(request, "stream", None),
        temperature=getattr(request, "temperature", None),
        tool_choice=_tool_choice(request.tool_choice) if tools else None,
        tools=tools or None,
        top_k=getattr(request, "top_k", None),
        top_p=getattr(request, "top_p", None),
    )


def _messages(request: CountRequest) -> list[Message]:
    messages: list[Message] = []
    if request.system is not None:
        messages.append(SystemMessage(content=_text(request.system)))
    lowered = {"user": _user, "assistant": _assistant, "system": _system}
    for turn in request.messages:
        messages += lowered[turn.role](turn)
    return messages


def _system(turn: Turn) -> list[Message]:
    content: Any = turn.content  # checked to be nothing but text
    return [SystemMessage(content=_text(content))]


def _text(content: str | list[TextBlock]) -> Text:
    if isinstance(content, str):
        return content
    if len(content) < 2:
        return content[0].text if content else ""
    return [TextPart(block.text) for block in content]


def _user(turn: Turn) -> list[Message]:
    """Return what tools answered, each for itself, and what the user says between them."""
    if isinstance(turn.content, str):
        return [UserMessage(content=turn.content)]
    messages: list[Message] = []
    said: list[TextBlock] = []
    for block in turn.content:
        if isinstance(block, TextBlock):
            said.append(block)
        elif isinstance(block, ToolResultBlock):
            messages += _said(said)
            said = []
            messages.append(ToolMessage(_result(block), block.tool_use_id))
    return messages + _said(said)


def _result(block: ToolResultBlock) -> Text:
    """Return what a tool answered; chat has no field for its failure, so that its text tells it."""
    text = _text(block.content)
    if not block.is_error:
        return text
    if isinstance(text, str):
        return f"Error: {text or 'the tool failed and said nothing.'}"
    return [TextPart(f"Error: {text[0].text}"), *text[1:]]


def _said(blocks: list[TextBlock]) -> list[Message]:
    return [UserMessage(content=_text(blocks))] if blocks else []


def _assistant(turn: Turn) -> list[Message]:
    if isinstance(turn.content, str):
        return [AssistantMessage(content=turn.content)]
    blocks: list[Block] = turn.content
    said = [block.text for block in blocks if isinstance(block, TextBlock)]
    thought = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
    calls = [
        ToolCall(block.id, FunctionCall(block.name, msgspec.json.encode(block.input).decode()))
        for block in blocks
        if isinstance(block, ToolUseBlock)
    ]
    message = AssistantMessage(
        content="".join(said) if said else None,
        reasoning="".join(thought) or None,
        tool_calls=calls or None,
    )
    return [message]


def _tool_choice(choice: Choice | None) -> chat.ToolChoice | None:
    if isinstance(choice, ToolChoice):
        return chat.NamedTool(chat.Named(choice.name))
    words: dict[type[Any], chat.ToolChoice] = {
        AutoChoice: "auto",
        AnyChoice: "required",
        NoChoice: "none",
    }
    return words.get(type(choice))


def _may_call_several(choice: Choice | None) -> bool | None:
    return False if getattr(choice, "disable_parallel_tool_use", None) else None


def _response_format(config: OutputConfig | None) -> chat.JsonSchemaAnswer | None:
    if config is None or config.format is None:
        return None
    return chat.JsonSchemaAnswer(chat.JsonSchemaFormat("answer", config.format.schema))
