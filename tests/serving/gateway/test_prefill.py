"""A last turn of the assistant's is continued, or refused in Anthropic's words."""

import json
from typing import Any

import pytest

from serving.gateway.dialects.anthropic.messages import (
    CountTokensDialect,
    MessagesBase,
    MessagesDialect,
)
from serving.gateway.errors import BadRequest
from tests.fixtures import catalog
from tests.fixtures.engine_requests import told_to_vllm

ASK = [{"role": "user", "content": "What is the capital of Italy?"}]
TOOL = {"name": "f", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
FORMAT = {"format": {"type": "json_schema", "schema": {"type": "object"}}}


def told(content: Any, dialect: MessagesBase | None = None, **fields: Any) -> dict[str, Any]:
    dialect = dialect or MessagesDialect()
    turns = [*ASK, {"role": "assistant", "content": content}] if content is not None else ASK
    body = {"model": "demo", "messages": turns} | fields
    if isinstance(dialect, MessagesDialect):
        body["max_tokens"] = 9
    data = json.dumps(body).encode()
    made = dialect.inference(dialect.decode(data), body_bytes=len(data), model=catalog.model())
    return told_to_vllm(made)


@pytest.mark.parametrize("dialect", [MessagesDialect(), CountTokensDialect()])
@pytest.mark.parametrize(
    "content", ["The capital", "", [{"type": "text", "text": "The"}], "<tool_call>"]
)
def test_a_last_turn_of_the_assistants_is_continued(dialect: MessagesBase, content: Any) -> None:
    body = told(content, dialect)
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert body["messages"][-1]["role"] == "assistant"


def test_a_last_turn_of_the_users_is_answered() -> None:
    assert not {"continue_final_message", "add_generation_prompt"} & set(told(None))


@pytest.mark.parametrize(
    ("content", "fields", "words"),
    [
        ("The capital ", {}, "cannot end with trailing whitespace"),
        ([{"type": "text", "text": "The\n"}], {}, "cannot end with trailing whitespace"),
        ("{", {"output_config": FORMAT}, "`output_config.format`"),
        ([CALL], {"tools": [TOOL]}, "`tool_use` ids were found without `tool_result` blocks"),
        ("<tool_call>", {"tools": [TOOL]}, "markup of a tool call"),
        ("[TOOL_CALLS]", {"tools": [TOOL]}, "markup of a tool call"),
        ([{"type": "thinking", "thinking": "hm"}], {}, "no text to continue"),
    ],
)
def test_what_cannot_be_continued_is_refused(
    content: Any, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        told(content, **fields)
    assert caught.value.message.startswith("messages: ")
    assert words in caught.value.message
