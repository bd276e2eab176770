"""What an engine would have to compile is compiled ahead, once, and refused by its field."""

import time
from typing import Any

import pytest

from serving import grammar_verdicts
from serving.contract.grammar import GrammarVerdict, Verdict
from serving.gateway import grammar_check
from tests.fixtures.gateway import MESSAGES, Stack

CHAT = "/v1/chat/completions"
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": OBJECT}}
ASK: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "max_tokens": 2}


def tool(name: str, parameters: Any = OBJECT, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    named = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


TOOLS = [tool("f"), tool("g", OBJECT | {"title": "g"})]
STRICT = [tool("f"), tool("g", OBJECT | {"title": "g"}, strict=True)]


async def ask(stack: Stack, **fields: Any) -> tuple[int, str | None, str | None]:
    async with stack.post(CHAT, ASK | fields) as reply:
        error = (await reply.json()).get("error", {})
        return reply.status, error.get("code"), error.get("param")


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, 0),
        ({"response_format": {"type": "json_object"}}, 0),
        ({"tools": TOOLS}, 0),
        ({"tools": TOOLS, "tool_choice": "auto"}, 0),
        ({"response_format": FORMAT}, 1),
        ({"tools": TOOLS, "tool_choice": "required"}, 2),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}, 1),
        ({"tools": STRICT}, 1),
        ({"tools": STRICT, "response_format": FORMAT}, 2),
        ({"tools": STRICT, "tool_choice": "none"}, 0),
        ({"tools": STRICT, "tool_choice": "none", "response_format": FORMAT}, 1),
        ({"tools": TOOLS, "tool_choice": allowed("auto", "g")}, 0),
        ({"tools": STRICT, "tool_choice": allowed("auto", "f")}, 0),
        ({"tools": TOOLS, "tool_choice": allowed("required", "g")}, 1),
    ],
)
async def test_only_what_an_engine_compiles_is_asked_about(
    stack: Stack, fields: dict[str, Any], asked: int
) -> None:
    assert (await ask(stack, **fields))[0] == 200
    questions = stack.control.grammars.questions
    assert sum(len(question.schemas) for question in questions) == asked
    assert all(question.organization_id == "org_a" for question in questions)


@pytest.mark.parametrize("verdict", ["refused", "too_complex"])
async def test_a_bad_one_is_refused_by_its_field_and_not_asked_about_again(
    stack: Stack, verdict: Verdict
) -> None:
    stack.control.grammars.verdict = GrammarVerdict(verdict, 1)
    for _ in range(2):
        answer = await ask(stack, tools=TOOLS, tool_choice="required")
        assert answer == (400, "invalid_value", "tools[1].function.parameters")
    stack.control.grammars.verdict = GrammarVerdict(verdict)
    answer = await ask(stack, response_format=FORMAT)
    assert answer == (400, "invalid_value", "response_format.json_schema.schema")
    assert len(stack.control.grammars.questions) == 2
    assert not stack.events


async def test_a_good_one_is_asked_about_once(stack: Stack) -> None:
    stack.control.grammars.verdict = GrammarVerdict("good")
    for _ in range(3):
        assert (await ask(stack, response_format=FORMAT))[0] == 200
    assert len(stack.control.grammars.questions) == 1
    assert stack.gateway.grammars.unchecked_count == 0


async def test_too_many_of_ones_own_are_our_capacity(stack: Stack) -> None:
    stack.control.grammars.verdict = GrammarVerdict("busy")
    assert (await ask(stack, response_format=FORMAT))[:2] == (503, "server_is_overloaded")
    stack.control.grammars.verdict = GrammarVerdict("good")
    assert (await ask(stack, response_format=FORMAT))[0] == 200


RESPONSES_FORMAT = {"type": "json_schema", "name": "answer", "schema": OBJECT}
ANTHROPIC_TOOL = {"name": "f", "input_schema": OBJECT}
IN_EVERY_DIALECT: list[tuple[str, dict[str, Any]]] = [
    (CHAT, ASK | {"response_format": FORMAT}),
    ("/v1/responses", {"model": "demo", "input": "hi", "text": {"format": RESPONSES_FORMAT}}),
    ("/v1/messages", ASK | {"tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "any"}}),
]


@pytest.mark.parametrize(("path", "body"), IN_EVERY_DIALECT)
@pytest.mark.parametrize("verdict", [GrammarVerdict("unknown"), None])
async def test_what_nobody_can_tell_goes_to_no_engine(
    stack: Stack, path: str, body: dict[str, Any], verdict: GrammarVerdict | None
) -> None:
    stack.control.grammars.verdict = verdict
    async with stack.post(path, body) as reply:
        error = (await reply.json())["error"]
        status = 529 if path == "/v1/messages" else 503
        assert (reply.status, reply.headers["retry-after"]) == (status, "5")
    assert "being checked" in error["message"]
    if path == "/v1/messages":
        assert error["type"] == "overloaded_error"
    else:
        assert error["code"] == "server_is_overloaded"
    assert not stack.events


async def test_a_fleet_that_is_away_is_left_alone_for_a_while_and_what_is_known_goes_on(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.control.grammars.verdict = GrammarVerdict("good")
    assert (await ask(stack, response_format=FORMAT))[0] == 200
    stack.control.grammars.verdict = None
    monkeypatch.setattr(grammar_check, "AWAY_SECONDS", 600.0)
    known = stack.gateway.grammars._verdicts
    monkeypatch.setattr(known, "_clock", lambda: time.monotonic() + 601.0)
    assert (await ask(stack, response_format=FORMAT))[0] == 200, (
        "an old verdict is better than none"
    )
    for _ in range(3):
        assert (await ask(stack, tools=STRICT))[0] == 503
    assert len(stack.control.grammars.questions) == 2
    stack.control.grammars.verdict = GrammarVerdict("good")
    monkeypatch.setattr(stack.gateway.grammars, "_away_until", {})
    assert (await ask(stack, tools=STRICT))[0] == 200


async def test_an_engine_without_a_compiler_of_ours_is_left_to_itself(stack: Stack) -> None:
    for _ in range(2):
        assert (await ask(stack, response_format=FORMAT))[0] == 200
    assert stack.gateway.grammars.unchecked_count == 2


async def test_verdicts_are_kept_in_bounds(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_verdicts, "VERDICTS_MAX", 2)
    stack.control.grammars.verdict = GrammarVerdict("good")
    for number in range(4):
        schema = {"name": "answer", "schema": OBJECT | {"title": str(number)}}
        await ask(stack, response_format={"type": "json_schema", "json_schema": schema})
    assert len(stack.gateway.grammars._verdicts) == 2
