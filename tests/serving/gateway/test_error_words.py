"""An error says the field, what was sent, what is wanted and, where it can, the likely fix."""

import json
from typing import Any

import pytest

from serving.gateway.app import nothing_at
from serving.gateway.dialects.anthropic.messages import MessagesDialect
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.completions import CompletionsDialect
from serving.gateway.dialects.openai.embeddings import EmbeddingsDialect
from serving.gateway.dialects.openai.responses import ResponsesDialect
from serving.gateway.dialects.routes import DIALECTS
from serving.gateway.errors import BadRequest
from tests.fixtures import catalog
from tests.fixtures.gateway import Stack

USER = {"role": "user", "content": "hi"}
CHAT, COMPLETIONS, EMBEDDINGS = ChatDialect(), CompletionsDialect(), EmbeddingsDialect()
RESPONSES, MESSAGES = ResponsesDialect(), MessagesDialect()
ASK: dict[Any, dict[str, Any]] = {
    CHAT: {"model": "demo", "messages": [USER]},
    COMPLETIONS: {"model": "demo", "prompt": "hi"},
    EMBEDDINGS: {"model": "demo", "input": "hi"},
    RESPONSES: {"model": "demo", "input": "hi"},
    MESSAGES: {"model": "demo", "messages": [USER], "max_tokens": 5},
}


def refused(dialect: Any, data: bytes) -> BadRequest:
    record = catalog.embedder() if dialect.task == "embed" else catalog.model()
    with pytest.raises(BadRequest) as caught:
        dialect.inference(dialect.decode(data), body_bytes=len(data), model=record)
    return caught.value


CASES: list[tuple[Any, dict[str, Any], str]] = [
    (EMBEDDINGS, {"input": ""},
     "'input': got an empty text; an input has at least one character."),
    (EMBEDDINGS, {"input": ["a", ""]},
     "'input[1]': got an empty text; an input has at least one character."),
    (EMBEDDINGS, {"dimensions": 65}, "'dimensions': got 65; this model gives at most 64."),
    (COMPLETIONS, {"prompt": ""},
     "'prompt': got an empty text; a prompt has at least one character."),
    (COMPLETIONS, {"logprobs": 6}, "'logprobs': got 6; expected an integer from 0 to 5."),
    (CHAT, {"temperature": 3}, "'temperature': got 3; expected a number from 0 to 2."),
    (CHAT, {"top_p": 0}, "'top_p': got 0; expected a number above 0, at most 1."),
    (CHAT, {"max_tokens": 300}, "'max_tokens': got 300; this model gives at most 256 tokens."),
    (CHAT, {"stop": ["a"] * 5},
     "'stop': got a list of 5; expected a text of 1 to 256 characters or a list of at most 4"
     " items."),
    (CHAT, {"store": True}, "'store': got true; expected false."),
    (CHAT, {"stream": "yes"}, "'stream': got 'yes'; expected true or false."),
    (CHAT, {"messages": [{"role": "robot", "content": "hi"}]},
     "'messages[0].role': got 'robot'; expected one of 'system', 'developer', 'user',"
     " 'assistant', 'tool'."),
    (CHAT, {"messages": [{"role": "user", "content": 5}]},
     "'messages[0].content': got 5; expected a text or a list of 1 to 1024 items."),
    (CHAT, {"tool_choice": "auto"},
     "'tool_choice': got 'auto'; only allowed when 'tools' are given."),
    (CHAT, {"messages": []}, "'messages': got an empty list; expected a list of 1 to 2048 items."),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "a b"}}]},
     "'tools[0].function.name': got 'a b'; expected a text of 1 to 64 characters that matches"
     r" ^[A-Za-z0-9_.-]+\Z."),
    (CHAT, {"user": "u" * 600},
     f"'user': got '{'u' * 60}…' (600 characters); expected a text of at most 512 characters."),
    (RESPONSES, {"truncation": "auto"}, "'truncation': got 'auto'; expected 'disabled'."),
    (RESPONSES, {"input": [{"role": "user", "content": "hi", "phase": "x"}]},
     "'input[0].phase': got 'x'; expected one of 'commentary', 'final_answer'."),
    (MESSAGES, {"thinking": {"type": "on"}},
     "'thinking.type': got 'on'; expected one of 'adaptive', 'between_tools', 'disabled',"
     " 'enabled'."),
    (MESSAGES, {"metadata": {"user_id": {"a": 1}}},
     "'metadata.user_id': got an object; expected a text of at most 512 characters."),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "fields", "words"), CASES)
def test_a_value_that_is_not_taken_is_told_with_what_is(
    dialect: Any, fields: dict[str, Any], words: str
) -> None:
    error = refused(dialect, json.dumps(ASK[dialect] | fields).encode())
    assert error.message == f"Invalid value for {words}"
    assert error.param == words[1:].partition("'")[0]


def test_a_body_that_is_no_object_is_told_so() -> None:
    assert refused(CHAT, b"[1]").message == "Invalid body: got a list of 1; expected an object."


def test_what_cannot_be_read_behind_the_fault_changes_nothing() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    error = refused(CHAT, b'{"model":"demo","temperature":3,"messages":%b}' % deep)
    assert error.message.startswith("Invalid value for 'temperature': expected a number")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/chat/completions", "Did you mean '/v1/chat/completions'? '/v1' is missing"),
        ("/openai/messages", "Did you mean '/v1/messages'? '/v1' is missing"),
        ("/messages/count_tokens", "Did you mean '/v1/messages/count_tokens'?"),
        ("/models", "Did you mean '/v1/models'? '/v1' is missing"),
        ("/v1/v1/messages", "Did you mean '/v1/messages'? Leave '/v1' out of the base URL"),
        ("/api/v1/responses", "Did you mean '/v1/responses'? Leave '/api' out of the base URL"),
        ("/v1/moderations", "There are /v1/models, /v1/chat/completions, /v1/completions,"),
    ],
)
def test_an_address_where_nothing_is_names_the_likely_one(path: str, words: str) -> None:
    told = nothing_at(path, DIALECTS)
    assert told.startswith(f"There is nothing at '{path}'. ")
    assert words in told


async def test_both_languages_tell_of_a_wrong_address(stack: Stack) -> None:
    async with stack.post("/chat/completions", ASK[CHAT]) as reply:
        error = (await reply.json())["error"]
    assert (reply.status, error["code"]) == (404, "unknown_url")
    assert "'/v1' is missing" in error["message"]
    version = {"anthropic-version": "2023-06-01"}
    async with stack.post("/v1/v1/messages", ASK[MESSAGES], version) as reply:
        body = await reply.json()
    assert body["error"]["type"] == "not_found_error"
    assert "Leave '/v1' out of the base URL" in body["error"]["message"]
