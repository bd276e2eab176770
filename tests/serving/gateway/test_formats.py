"""Formats reach an engine with their blanks bounded, where it knows how to say that."""

import json
from typing import Any

import pytest

from serving.engine.adapter import GENERATION_CAPABILITIES
from serving.engine.request import write
from serving.gateway.dialects.openai.chat import ChatDialect
from tests.fixtures import catalog

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def told(capabilities: tuple[str, ...], **fields: Any) -> Any:
    body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]} | fields
    data, chat = json.dumps(body).encode(), ChatDialect()
    work = chat.inference(
        chat.decode(data), body_bytes=len(data), model=catalog.model()
    ).engine_request
    request = write(
        work, served_name="m", capabilities=capabilities, cache_salt="s", request_id="r"
    )
    return json.loads(b"".join(request.body)).get("response_format")


@pytest.mark.parametrize(
    ("asked", "schema"), [(JSON_SCHEMA, SCHEMA), ({"type": "json_object"}, {"type": "object"})]
)
def test_a_format_bounds_blanks(asked: dict[str, Any], schema: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": 16}
    bounded = {"type": "structural_tag", "format": form}
    assert told((*GENERATION_CAPABILITIES, "structural_tag"), response_format=asked) == bounded
    assert told(GENERATION_CAPABILITIES, response_format=asked) == asked
    chosen = told((*GENERATION_CAPABILITIES, "structural_tag"), response_format=asked, tools=TOOLS)
    assert chosen == bounded


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": {"type": "text"}},
        {"response_format": JSON_SCHEMA, "tools": TOOLS, "tool_choice": "required"},
    ],
)
def test_text_and_calls_that_must_be_made_have_no_format(fields: dict[str, Any]) -> None:
    assert told((*GENERATION_CAPABILITIES, "structural_tag"), **fields) is None


def test_a_seed_that_engines_take_for_none_is_another() -> None:
    body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "seed": -1}
    data, chat = json.dumps(body).encode(), ChatDialect()
    work = chat.inference(
        chat.decode(data), body_bytes=len(data), model=catalog.model()
    ).engine_request
    assert json.loads(b"".join((*work.fields, b"}")))["seed"] == 2**63 - 2
