"""What becomes of every field of the official clients' request types.

`taken`: it changes what the engine or the client is told. `ignored`: it is accepted, changes
nothing, and docs/api/requests.md says so. `default`: accepted where it says what happens anyway,
refused by name otherwise. `refused`: by name. `omitted`: left out, and named in a header. `header`:
the client sends it as a header, which nobody reads here.
"""

from dataclasses import dataclass
from typing import Any

from anthropic.types import message_count_tokens_params, message_create_params
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from serving.gateway.dialects.anthropic.messages import CountTokensDialect, MessagesDialect
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.completions import CompletionsDialect
from serving.gateway.dialects.openai.embeddings import EmbeddingsDialect
from serving.gateway.dialects.openai.responses import ResponsesDialect
from tests.serving.gateway.sdk_anthropic import COUNT_TOKENS, MESSAGES
from tests.serving.gateway.sdk_openai import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES

USER = {"role": "user", "content": "hi"}
OBJECT = {"type": "object"}
FUNCTION: dict[str, Any] = {"name": "f", "parameters": OBJECT}
CHAT_TOOL = {"type": "function", "function": FUNCTION}
RESPONSES_TOOL = {"type": "function"} | FUNCTION
MESSAGES_TOOL = {"name": "f", "input_schema": OBJECT}


@dataclass(frozen=True)
class Root:
    """A route with the types of its body and what it cannot do without."""

    dialect: Any
    kinds: tuple[type, ...]
    base: dict[str, Any]
    last_turns: tuple[dict[str, Any], ...] = ()
    """Behind those that are sent: an assistant's turn that is the last would be continued."""

    def body(self, fields: dict[str, Any]) -> dict[str, Any]:
        if not self.last_turns:
            return fields
        return fields | {"messages": [*fields["messages"], *self.last_turns]}


ROOTS = {
    "chat": Root(
        ChatDialect(),
        (
            chat_create_params.CompletionCreateParamsStreaming,
            chat_create_params.CompletionCreateParamsNonStreaming,
        ),
        {"model": "demo", "messages": [USER]},
    ),
    "completions": Root(
        CompletionsDialect(),
        (
            completion_create_params.CompletionCreateParamsStreaming,
            completion_create_params.CompletionCreateParamsNonStreaming,
        ),
        {"model": "demo", "prompt": "hi"},
    ),
    "responses": Root(
        ResponsesDialect(),
        (
            response_create_params.ResponseCreateParamsStreaming,
            response_create_params.ResponseCreateParamsNonStreaming,
        ),
        {"model": "demo", "input": "hi"},
    ),
    "embeddings": Root(
        EmbeddingsDialect(),
        (embedding_create_params.EmbeddingCreateParams,),
        {"model": "demo", "input": "hi"},
    ),
    "messages": Root(
        MessagesDialect(),
        (
            message_create_params.MessageCreateParamsStreaming,
            message_create_params.MessageCreateParamsNonStreaming,
        ),
        {"model": "demo", "messages": [USER], "max_tokens": 5},
        last_turns=(USER,),
    ),
    "count_tokens": Root(
        CountTokensDialect(),
        (message_count_tokens_params.MessageCountTokensParams,),
        {"model": "demo", "messages": [USER]},
        last_turns=(USER,),
    ),
}
"""Of two types the first is walked; the other has the same fields."""

_CHAT, _RESPONSES = "CompletionCreateParamsStreaming", "ResponseCreateParamsStreaming"
_MESSAGES, _COUNT = "MessageCreateParamsStreaming", "MessageCountTokensParams"
SAMPLES: dict[str, Any] = {
    f"{_CHAT}.best_of": 1,
    f"{_CHAT}.logit_bias": {"5": 1},
    f"{_CHAT}.messages": [USER],
    f"{_CHAT}.modalities": ["text"],
    f"{_CHAT}.model": "another",
    f"{_CHAT}.n": 2,
    f"{_CHAT}.response_format": {"type": "json_object"},
    f"{_CHAT}.seed": 7,
    f"{_CHAT}.service_tier": "priority",
    f"{_CHAT}.store": False,
    f"{_CHAT}.stream_options": {"include_usage": True},
    f"{_CHAT}.tool_choice": "required",
    f"{_CHAT}.tools": [CHAT_TOOL],
    f"{_CHAT}.top_p": 0.5,
    f"{_RESPONSES}.include": ["message.output_text.logprobs"],
    f"{_RESPONSES}.input": "How are you?",
    f"{_RESPONSES}.max_output_tokens": 7,
    f"{_RESPONSES}.model": "another",
    f"{_RESPONSES}.parallel_tool_calls": False,
    f"{_RESPONSES}.reasoning": {"effort": "high"},
    f"{_RESPONSES}.service_tier": "priority",
    f"{_RESPONSES}.store": False,
    f"{_RESPONSES}.text": {"format": {"type": "json_object"}},
    f"{_RESPONSES}.tool_choice": "required",
    f"{_RESPONSES}.tools": [RESPONSES_TOOL],
    f"{_RESPONSES}.truncation": "disabled",
    "ChatCompletionAllowedToolsParam.tools": [{"type": "function", "function": {"name": "f"}}],
    "ChatCompletionNamedToolChoiceParam.function": {"name": "f"},
    "CustomToolParam.async": False,
    "CustomToolParam.format": {"type": "grammar", "syntax": "lark", "definition": "start: A"},
    "CustomToolParam.name": "f",
    "EmbeddingCreateParams.dimensions": 8,
    "EmbeddingCreateParams.encoding_format": "base64",
    "FunctionCallOutput.call_id": "call_1",
    "chat_completion_named_tool_choice_param.Function.name": "f",
    "FunctionDefinition.name": "f",
    "FunctionDefinition.parameters": OBJECT,
    "FunctionToolParam.async": False,
    "FunctionToolParam.name": "f",
    "FunctionToolParam.parameters": OBJECT,
    "JSONOutputFormatParam.schema": OBJECT,
    "JSONSchema.schema": OBJECT,
    "NamespaceToolParam.name": "f",
    "NamespaceToolParam.tools": [RESPONSES_TOOL],
    "OutputConfigParam.effort": "high",
    "Reasoning.context": "auto",
    "Reasoning.effort": "high",
    "Reasoning.mode": "standard",
    "ResponseFormatTextJSONSchemaConfigParam.schema": OBJECT,
    "ResponseFunctionToolCallParam.async": False,
    "ResponseCustomToolCallParam.async": False,
    "ResponseOutputMessageParam.content": [
        {"type": "output_text", "text": "hi", "annotations": []}
    ],
    "ResponseOutputTextParam.annotations": [],
    "ResponseTextConfigParam.format": {"type": "json_object"},
    "ResponseReasoningItemParam.content": [{"type": "reasoning_text", "text": "hi"}],
    "ResponseReasoningItemParam.summary": [],
    "ToolChoiceAllowedParam.tools": [{"type": "function", "name": "f"}],
    "ToolChoiceCustomParam.name": "f",
    "ToolChoiceFunctionParam.name": "f",
    "ToolChoiceToolParam.name": "f",
    "ToolFunction.async": False,
    "ToolFunction.name": "f",
    "ToolFunction.parameters": OBJECT,
    "ToolParam.input_schema": OBJECT,
    "ToolParam.name": "f",
    "ToolParam.type": "custom",
    "TextBlockParam.citations": [],
} | {
    f"{root}.{name}": value
    for root in (_MESSAGES, _COUNT)
    for name, value in {
        "max_tokens": 7,
        "messages": [USER],
        "model": "another",
        "output_config": {"effort": "high"},
        "speed": "standard",
        "thinking": {"type": "adaptive"},
        "tool_choice": {"type": "any"},
        "tools": [MESSAGES_TOOL],
    }.items()
}
"""Values of fields, where the simplest of their type would not do or show nothing."""
BESIDE: dict[str, dict[str, Any]] = {
    f"{_CHAT}.parallel_tool_calls": {"tools": [CHAT_TOOL]},
    f"{_CHAT}.tool_choice": {"tools": [CHAT_TOOL]},
    f"{_CHAT}.top_logprobs": {"logprobs": True},
    f"{_RESPONSES}.parallel_tool_calls": {"tools": [RESPONSES_TOOL]},
    f"{_RESPONSES}.tool_choice": {"tools": [RESPONSES_TOOL]},
    f"{_MESSAGES}.tool_choice": {"tools": [MESSAGES_TOOL]},
    f"{_COUNT}.tool_choice": {"tools": [MESSAGES_TOOL]},
}
"""What a body has besides, with a field and with all within it."""
OTHERWISE: dict[str, Any] = {
    "async": True,
    "best_of": 2,
    "context": "all_turns",
    "mode": "pro",
    "modalities": ["audio"],
    "speed": "fast",
    "store": True,
    "truncation": "auto",
    "citations": [{"type": "char_location"}],
}
"""Of fields that may hold the default alone, another value."""

FIELDS = {
    "chat": CHAT,
    "completions": COMPLETIONS,
    "responses": RESPONSES,
    "embeddings": EMBEDDINGS,
    "messages": MESSAGES,
    "count_tokens": COUNT_TOKENS,
}
