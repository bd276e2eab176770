"""`POST /v1/messages` and `/v1/messages/count_tokens`, translated to a chat that says the same.

A last turn of the assistant's is a prefill: the model goes on from there, as if it had said so
itself.
"""

import re
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from serving.contract.records import ModelRecord, Task
from serving.engine.errors import RequestRejected
from serving.engine.request import EngineRequest
from serving.gateway.dialects.anthropic import envelope
from serving.gateway.dialects.anthropic.envelope import AnthropicEnvelope
from serving.gateway.dialects.anthropic.messages_render import (
    MessageRenderer,
    MessageStreamRenderer,
)
from serving.gateway.dialects.anthropic.messages_request import (
    AnyToolChoice,
    AutoToolChoice,
    Block,
    Choice,
    CountTokensRequest,
    MessageParam,
    MessagesRequest,
    NamedAnthropicToolChoice,
    NoToolChoice,
    OutputConfig,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    check,
)
from serving.gateway.dialects.base import InferenceRequest, Renderer
from serving.gateway.dialects.openai import chat_request
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.chat_request import (
    AssistantMessage,
    ChatFunctionCall,
    ChatToolCall,
    Message,
    SystemMessage,
    Text,
    TextPart,
    ToolMessage,
    UserMessage,
)
from serving.gateway.dialects.validation import (
    ContextExceeded,
    Names,
    StrictDecoder,
    renamed,
    with_names,
)
from serving.gateway.errors import ApiError, BadRequest

CONTINUED = b',"continue_final_message":true,"add_generation_prompt":false'
"""To vLLM. Of a last turn that is not the assistant's it would continue the user's words."""
_TOOL_MARKUP = re.compile(
    r"<[|\uff5c]?/?tool[_\u2581 ]?(call|use|s)|<[|\uff5c]python_tag|<function[=_ ]"
    r"|\[TOOL_CALLS\]|<\w+:tool_call"
)
"""How models begin a call. A parser that never sees the opening lets the rest leave as text."""


def continues(request: CountTokensRequest) -> bool:
    """Tell whether the last turn is to be continued. Raises BadRequest where it cannot be."""
    last = request.messages[-1]
    if last.role != "assistant":
        return False
    text = _last_text(last)
    if text is None:
        raise _refused("the final assistant message has no text to continue")
    if text != text.rstrip():
        raise _refused("final assistant content cannot end with trailing whitespace")
    if request.output_config is not None and request.output_config.format is not None:
        raise _refused("a final assistant message cannot be continued with `output_config.format`")
    if request.tools and _TOOL_MARKUP.search(text):
        raise _refused("final assistant content cannot hold the markup of a tool call")
    return True


def continued(engine_request: EngineRequest) -> EngineRequest:
    """Return the work that continues the last message."""
    return replace(engine_request, fields=(*engine_request.fields, CONTINUED))


def _last_text(turn: MessageParam) -> str | None:
    """Return what the turn says last; None where it thinks alone. Raises BadRequest."""
    if isinstance(turn.content, str):
        return turn.content
    for block in turn.content:
        if isinstance(block, ToolUseBlock):
            quoted = f": {block.id[:200]}"
            raise _refused(
                "`tool_use` ids were found without `tool_result` blocks immediately after"
                f"{quoted}. Each `tool_use` block must have a corresponding `tool_result` block in"
                " the next message",
                quoted,
            )
    texts = [block.text for block in turn.content if isinstance(block, TextBlock)]
    return "".join(texts) if texts else None


def _refused(what: str, quoted: str = "") -> BadRequest:
    message = f"messages: {what}"
    return BadRequest(message, code="invalid_value", param="messages", quoted=quoted)


def lower(request: CountTokensRequest) -> chat_request.ChatRequest:
    """Return the chat that asks for the same."""
    tools = [
        chat_request.ChatTool(
            chat_request.FunctionDefinition(
                tool.name, tool.description, tool.input_schema, tool.strict
            ),
            "function",
        )
        for tool in request.tools or ()
    ]
    config = request.output_config
    return chat_request.ChatRequest(
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


def _messages(request: CountTokensRequest) -> list[Message]:
    messages: list[Message] = []
    if request.system is not None:
        messages.append(SystemMessage(content=_text(request.system)))
    lowered = {"user": _user, "assistant": _assistant, "system": _system}
    for turn in request.messages:
        messages += lowered[turn.role](turn)
    return messages


def _system(turn: MessageParam) -> list[Message]:
    content: Any = turn.content  # checked to be nothing but text
    return [SystemMessage(content=_text(content))]


def _text(content: str | list[TextBlock]) -> Text:
    if isinstance(content, str):
        return content
    if len(content) < 2:
        return content[0].text if content else ""
    return [TextPart(block.text) for block in content]


def _user(turn: MessageParam) -> list[Message]:
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


def _assistant(turn: MessageParam) -> list[Message]:
    if isinstance(turn.content, str):
        return [AssistantMessage(content=turn.content)]
    blocks: list[Block] = turn.content
    said = [block.text for block in blocks if isinstance(block, TextBlock)]
    thought = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
    calls = [
        ChatToolCall(
            block.id, ChatFunctionCall(block.name, msgspec.json.encode(block.input).decode())
        )
        for block in blocks
        if isinstance(block, ToolUseBlock)
    ]
    message = AssistantMessage(
        content="".join(said) if said else None,
        reasoning="".join(thought) or None,
        tool_calls=calls or None,
    )
    return [message]


def _tool_choice(choice: Choice | None) -> chat_request.ToolChoice | None:
    if isinstance(choice, NamedAnthropicToolChoice):
        return chat_request.NamedToolChoice(chat_request.FunctionReference(choice.name))
    words: dict[type[Any], chat_request.ToolChoice] = {
        AutoToolChoice: "auto",
        AnyToolChoice: "required",
        NoToolChoice: "none",
    }
    return words.get(type(choice))


def _may_call_several(choice: Choice | None) -> bool | None:
    return False if getattr(choice, "disable_parallel_tool_use", None) else None


def _response_format(config: OutputConfig | None) -> chat_request.JsonSchemaFormat | None:
    if config is None or config.format is None:
        return None
    return chat_request.JsonSchemaFormat(
        chat_request.JsonSchemaDefinition("answer", config.format.schema)
    )


NAMES: Names = (
    (re.compile(r"^response_format(\.json_schema)?"), "output_config.format"),
    (re.compile(r"^(tools\[\d+\])\.function\.parameters"), r"\1.input_schema"),
)


class MessagesBase(AnthropicEnvelope):
    """What both routes share: a body that is lowered to chat, and errors in Anthropic's words."""

    task: ClassVar[Task] = "generate"
    kind: ClassVar[type[CountTokensRequest]]

    def __init__(self) -> None:
        self._decode = StrictDecoder(self.kind)
        self._chat = ChatDialect()

    def decode(self, data: bytes) -> Any:
        """Return the body. Raises BadRequest."""
        request: Any = self._decode(data)
        check(request)
        return request

    def has_schemas(self, request: CountTokensRequest) -> bool:
        """Tell whether the request brings JSON Schemas."""
        return request.tools is not None or request.output_config is not None

    def inference(
        self, request: CountTokensRequest, *, body_bytes: int, model: ModelRecord
    ) -> InferenceRequest:
        """Check the body against its model and return the request that it is. Raises BadRequest."""
        goes_on = continues(request)
        try:
            inference = self._chat.inference(lower(request), body_bytes=body_bytes, model=model)
        except BadRequest as error:
            raise _reworded(error) from None
        engine_request = with_names(inference.engine_request, NAMES)
        return replace(
            inference, engine_request=continued(engine_request) if goes_on else engine_request
        )

    def rejection(self, rejected: RequestRejected, inference: InferenceRequest) -> ApiError:
        """Return what is told of a request that the engine refuses."""
        return _reworded(self._chat.rejection(rejected, inference))


def _reworded(error: ApiError) -> ApiError:
    if isinstance(error, ContextExceeded):
        return BadRequest(envelope.context_exceeded(error), code=error.code, param=error.param)
    return renamed(error, NAMES)


class MessagesDialect(MessagesBase):
    """`POST /v1/messages`."""

    name: ClassVar[str] = "messages"
    path: ClassVar[str] = "/v1/messages"
    kind = MessagesRequest

    def inference(
        self, request: CountTokensRequest, *, body_bytes: int, model: ModelRecord
    ) -> InferenceRequest:
        """Check the body against its model and return the request that it is. Raises BadRequest."""
        return replace(super().inference(request, body_bytes=body_bytes, model=model), dialect=self)

    def renderer(self, inference: InferenceRequest, request_id: str) -> Renderer:
        """Return how the answer is told."""
        return (MessageStreamRenderer if inference.engine_request.is_streamed else MessageRenderer)(
            inference, request_id
        )


class CountTokensDialect(MessagesBase):
    """`POST /v1/messages/count_tokens`."""

    name: ClassVar[str] = "messages.count_tokens"
    path: ClassVar[str] = "/v1/messages/count_tokens"
    kind = CountTokensRequest

    def counted(self, tokens: int) -> bytes:
        """Return the answer."""
        return msgspec.json.encode({"input_tokens": tokens})
