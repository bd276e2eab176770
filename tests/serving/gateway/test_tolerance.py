"""What clients send though it changes no answer is taken, and reaches no engine."""

import json
import re
from typing import Any

import msgspec
import pytest

from serving.engine.errors import PromptLength, RequestRejected
from serving.gateway.dialects.anthropic.messages import CountTokensDialect, MessagesDialect
from serving.gateway.dialects.anthropic.messages_request import CountTokensRequest, MessagesRequest
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.chat_request import ChatRequest
from serving.gateway.dialects.openai.completions import (
    CompletionRequest,
    CompletionsDialect,
)
from serving.gateway.dialects.openai.embeddings import EmbeddingsDialect, EmbeddingsRequest
from serving.gateway.dialects.openai.responses import ResponsesDialect
from serving.gateway.dialects.openai.responses_request import ResponsesRequest
from serving.gateway.errors import BadRequest
from tests.fixtures import catalog
from tests.fixtures.engine_requests import told_to_vllm

CHAT, COMPLETIONS, RESPONSES, MESSAGES = (
    ChatDialect(),
    CompletionsDialect(),
    ResponsesDialect(),
    MessagesDialect(),
)
USER = {"role": "user", "content": "hi"}
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
ASK: dict[Any, dict[str, Any]] = {
    CHAT: {"model": "demo", "messages": [USER], "max_tokens": 5},
    COMPLETIONS: {"model": "demo", "prompt": "hi", "max_tokens": 5},
    RESPONSES: {"model": "demo", "input": "hi", "max_output_tokens": 5},
    MESSAGES: {"model": "demo", "messages": [USER], "max_tokens": 5},
    CountTokensDialect(): {"model": "demo", "messages": [USER]},
    EmbeddingsDialect(): {"model": "demo-embed", "input": "hi"},
}

KINDS: dict[str, type[msgspec.Struct]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
    "/v1/responses": ResponsesRequest,
    "/v1/messages": MessagesRequest,
    "/v1/messages/count_tokens": CountTokensRequest,
    "/v1/embeddings": EmbeddingsRequest,
}


def job(dialect: Any, body: Any) -> InferenceRequest:
    data = json.dumps(body).encode()
    record = catalog.embedder() if dialect.task == "embed" else catalog.model()
    made: InferenceRequest = dialect.inference(
        dialect.decode(data), body_bytes=len(data), model=record
    )
    return made


def told(dialect: Any, **fields: Any) -> dict[str, Any]:
    return told_to_vllm(job(dialect, ASK[dialect] | fields))


def refused(dialect: Any, body: dict[str, Any]) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        job(dialect, body)
    return caught.value


CACHING = {
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "implicit", "ttl": "30m"},
}
HINTS: list[tuple[Any, dict[str, Any]]] = [
    (CHAT, CACHING),
    (CHAT, {"prediction": {"type": "content", "content": "code"}, "verbosity": "low"}),
    (CHAT, {"modalities": ["text"], "safety_identifier": "s", "user": "u"}),
    (CHAT, {"messages": [{"role": "user", "content": [{
        "type": "text", "text": "hi", "cache_control": {"type": "ephemeral"},
        "prompt_cache_breakpoint": {"mode": "explicit"}}]}]}),
    (RESPONSES, CACHING),
    (RESPONSES, {"max_tool_calls": 3, "text": {"verbosity": "high"}, "truncation": "disabled"}),
    (RESPONSES, {"reasoning": {"mode": "standard", "context": "auto", "summary": "auto"}}),
    (RESPONSES, {"client_metadata": {"session": "s"}, "context_management": [
        {"type": "compaction", "compact_threshold": 1_000}]}),
    (MESSAGES, {"speed": "standard", "service_tier": "auto"}),
    (MESSAGES, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
    (MESSAGES, {"thinking": {"type": "adaptive"}, "context_management": {
        "edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}),
    (MESSAGES, {"diagnostics": {"previous_message_id": "msg_1"}}),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "fields"), HINTS)
def test_hints_and_values_that_are_the_default_are_taken_and_change_nothing(
    dialect: Any, fields: dict[str, Any]
) -> None:
    plain = told(dialect)
    with_hints = told(dialect, **fields)
    for body in (plain, with_hints):
        for message in body["messages"]:
            if message["content"] == [{"type": "text", "text": "hi"}]:
                message["content"] = "hi"  # one text, or a list of the one
    assert with_hints == plain


@pytest.mark.parametrize("dialect", ASK, ids=lambda dialect: dialect.path)
def test_null_is_an_absent_field_on_every_field(dialect: Any) -> None:
    body = ASK[dialect]
    fields: dict[str, Any] = dict.fromkeys(KINDS[dialect.path].__struct_fields__)
    assert set(body) <= set(fields)
    assert told_to_vllm(job(dialect, fields | {"a_field_of_tomorrow": None} | body)) == (
        told_to_vllm(job(dialect, body))
    )
    for field in msgspec.structs.fields(KINDS[dialect.path]):
        if field.required:
            error = refused(dialect, body | {field.name: None})
            assert (error.code, error.param) == ("missing_required_parameter", field.name)


def test_a_null_is_absent_within_and_a_client_s_own_stays() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [None, "b"], "default": None}}}
    tools = [{"type": "function", "x": None, "function": FUNCTION | {"parameters": schema}}]
    parts = [{"type": "text", "text": "hi", "y": None}]
    body = told(CHAT, tools=tools, messages=[{"role": "user", "content": parts, "z": None}])
    assert body["tools"][0]["function"]["parameters"] == schema
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {"k": None}, "w": None}
    turns = [USER, {"role": "assistant", "content": [call]}, USER]
    lowered = told(MESSAGES, messages=turns)["messages"][1]["tool_calls"][0]
    assert json.loads(lowered["function"]["arguments"]) == {"k": None}
    assert refused(CHAT, ASK[CHAT] | {"foo": 1, "bar": None}).param == "foo"
    item = {"type": "message", "role": "user", "content": "hi", "v": None}
    assert told(RESPONSES, input=[item])["messages"] == [USER]


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_every_effort_reaches_the_engine(effort: str) -> None:
    assert told(CHAT, reasoning_effort=effort)["reasoning_effort"] == effort
    assert told(RESPONSES, reasoning={"effort": effort})["reasoning_effort"] == effort
    if effort not in ("none", "minimal"):
        assert told(MESSAGES, output_config={"effort": effort})["reasoning_effort"] == effort


def test_what_asks_for_more_than_the_default_is_refused_by_name() -> None:
    for dialect, field, value in (
        (CHAT, "modalities", ["text", "audio"]),
        (CHAT, "audio", {"voice": "a", "format": "wav"}),
        (CHAT, "web_search_options", {}),
        (CHAT, "moderation", {"model": "m"}),
        (RESPONSES, "reasoning", {"mode": "pro"}),
        (RESPONSES, "truncation", "auto"),
        (MESSAGES, "speed", "fast"),
        (MESSAGES, "inference_geo", "us"),
    ):
        error = refused(dialect, ASK[dialect] | {field: value})
        assert (error.param or "").startswith(field)


def test_instructions_may_come_amid_a_conversation_of_messages() -> None:
    turns = [USER, {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}]
    assert told(MESSAGES, messages=turns)["messages"] == [
        USER,
        {"role": "system", "content": "Be brief."},
    ]
    wrong = {"role": "system", "content": [{"type": "tool_result", "tool_use_id": "a"}]}
    error = refused(MESSAGES, ASK[MESSAGES] | {"messages": [USER, wrong]})
    assert error.param == "messages[1].content[0].type"


PART = {"type": "text", "text": "no such file"}


@pytest.mark.parametrize(
    ("content", "told_as"),
    [
        ("no such file", "Error: no such file"),
        ([PART], "Error: no such file"),
        ([PART, PART], [PART | {"text": "Error: no such file"}, PART]),
        ("", "Error: the tool failed and said nothing."),
        ([], "Error: the tool failed and said nothing."),
    ],
)
def test_the_model_is_told_that_a_tool_failed(content: Any, told_as: Any) -> None:
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": content}
    for failed, wanted in ((True, told_as), (False, None), (None, None)):
        results = [result | {"is_error": failed}]
        turns = [
            USER,
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": results},
        ]
        last = told(MESSAGES, messages=turns)["messages"][-1]
        assert last["role"] == "tool"
        if wanted is None:
            assert "Error" not in json.dumps(last)
        else:
            assert last["content"] == wanted


def test_tools_of_anthropics_clients_may_say_how_they_like_to_be_told() -> None:
    plain = {"name": "f", "input_schema": {"type": "object"}}
    more = {
        "eager_input_streaming": True,
        "defer_loading": False,
        "input_examples": [{"a": 1}],
        "allowed_callers": ["direct"],
        "cache_control": {"type": "ephemeral"},
    }
    assert told(MESSAGES, tools=[plain | more]) == told(MESSAGES, tools=[plain])


def test_thoughts_under_another_name_are_thoughts() -> None:
    """As LiteLLM writes out an answer of ours, and sends it again."""
    said = {
        "role": "assistant",
        "content": "hello",
        "reasoning_content": "I greet.",
        "thinking_blocks": [{"type": "thinking", "thinking": "I greet.", "signature": ""}],
        "provider_specific_fields": {"refusal": None},
        "function_call": None,
        "images": None,
    }
    assert told(CHAT, messages=[USER, said, USER])["messages"][1] == {
        "role": "assistant",
        "content": "hello",
        "reasoning": "I greet.",
    }


def test_load_generators_may_ask_for_usage_all_along() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    for dialect in (CHAT, COMPLETIONS):
        assert job(
            dialect, ASK[dialect] | {"stream": True, "stream_options": options}
        ).include_usage


def test_a_prompt_may_be_given_back_with_its_log_probabilities() -> None:
    """As lm-eval asks."""
    body = told(COMPLETIONS, prompt=[[5, 6]], echo=True, logprobs=1, max_tokens=0, seed=1)
    assert (body["echo"], body["logprobs"], body["max_tokens"]) == (True, 1, 0)


@pytest.mark.parametrize("prompt", ["", [""], ["a", ""], [], [[]], [[5], []]])
def test_an_empty_prompt_is_refused_by_name(prompt: Any) -> None:
    error = refused(COMPLETIONS, ASK[COMPLETIONS] | {"prompt": prompt})
    assert (error.param or "").startswith("prompt")


SIZES = [None, PromptLength(600, False), PromptLength(600, True), PromptLength(400, False)]


@pytest.mark.parametrize("prompt", SIZES)
@pytest.mark.parametrize("dialect", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
def test_a_context_that_overflows_is_told_in_the_words_that_clients_look_for(
    dialect: Any, prompt: PromptLength | None
) -> None:
    """LiteLLM looks for OpenAI's and Anthropic's words, LangChain for the code or for those words,
    Claude Code for the figures."""
    tokens = {"max_output_tokens": 200} if dialect is RESPONSES else {"max_tokens": 200}
    made = job(dialect, ASK[dialect] | tokens)
    error = dialect.rejection(RequestRejected("context", prompt), made)
    assert error.code == "context_length_exceeded"
    if dialect is not MESSAGES:
        assert error.message.startswith("This model's maximum context length is 512 tokens. How")
        if prompt is not None:
            assert str(prompt.tokens) in error.message
            assert "200 in the completion" in error.message
            assert prompt.is_least == ("at least" in error.message)
    elif prompt is not None and prompt.tokens <= 512:
        figures = re.compile(
            r"input length and `max_tokens` exceed context limit: 400 \+ 200 > 512"
        )
        assert figures.match(error.message)
    else:
        assert error.message.startswith("prompt is too long: ")
        assert prompt is None or "600 tokens > 512 maximum" in error.message
