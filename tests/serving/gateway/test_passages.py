"""An answer falls into the same passages whole and as it comes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.errors import AnswerBroken
from serving.engine.event import Choice, FunctionCall, Message, Part, ToolCall
from serving.gateway.dialects.passages import Passages, passages_of

WORDS = st.text(min_size=1, max_size=6)


def part(**fields: Any) -> Part:
    return msgspec.convert({"index": 0} | fields, Part)


def call(index: int, **fields: Any) -> Part:
    return part(delta={"tool_calls": [{"index": index} | fields]})


@given(
    st.none() | WORDS,
    st.none() | WORDS,
    st.lists(st.tuples(WORDS, st.text(max_size=6)), max_size=3),
)
def test_whole_and_as_it_comes(
    thought: str | None, said: str | None, calls: list[tuple[str, str]]
) -> None:
    passages = Passages()
    steps = [step for letter in thought or "" for step in passages.read(reasoning(letter))]
    for letter in said or "":
        steps += passages.read(part(delta={"content": letter}))
    for index, (name, arguments) in enumerate(calls):
        steps += passages.read(call(index, id=f"c{index}", function={"name": name}))
        for letter in arguments:
            steps += passages.read(call(index, function={"arguments": letter}))
    steps += passages.read(part(finish_reason="stop"))
    steps += passages.end()
    message = Message(
        content=said,
        reasoning=thought,
        tool_calls=[ToolCall(f"c{n}", FunctionCall(*each)) for n, each in enumerate(calls)],
    )
    whole = passages_of(Choice(0, message))
    assert [(p.kind, p.place, p.id, p.name, p.text) for p in passages.closed] == [
        (p.kind, p.place, p.id, p.name, p.text) for p in whole
    ]
    told = [(step.does, step.passage.place) for step in steps if step.does != "go_on"]
    assert told == [(does, p.place) for p in whole for does in ("open", "close")]


def reasoning(text: str) -> Part:
    return part(delta={"reasoning": text})


def test_a_call_that_is_over_does_not_go_on() -> None:
    passages = Passages()
    passages.read(call(0, id="a", function={"name": "f"}))
    passages.read(call(1, id="b", function={"name": "g"}))
    with pytest.raises(AnswerBroken):
        passages.read(call(0, function={"arguments": "{}"}))


def test_an_answer_without_an_ending_is_none() -> None:
    passages = Passages()
    passages.read(part(delta={"content": "x"}))
    with pytest.raises(AnswerBroken):
        passages.end()
