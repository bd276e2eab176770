"""An answer falls into the same passages whole and as it comes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import (
    ChoiceDelta,
    EngineChoice,
    EngineFunctionCall,
    EngineMessage,
    EngineToolCall,
)
from serving.gateway.dialects.accumulate import ContentBlockSplitter, content_blocks_of

WORDS = st.text(min_size=1, max_size=6)


def part(**fields: Any) -> ChoiceDelta:
    return msgspec.convert({"index": 0} | fields, ChoiceDelta)


def call(index: int, **fields: Any) -> ChoiceDelta:
    return part(delta={"tool_calls": [{"index": index} | fields]})


@given(
    st.none() | WORDS,
    st.none() | WORDS,
    st.lists(st.tuples(WORDS, st.text(max_size=6)), max_size=3),
)
def test_whole_and_as_it_comes(
    thought: str | None, said: str | None, calls: list[tuple[str, str]]
) -> None:
    passages = ContentBlockSplitter()
    steps = [step for letter in thought or "" for step in passages.read(reasoning(letter))]
    for letter in said or "":
        steps += passages.read(part(delta={"content": letter}))
    for index, (name, arguments) in enumerate(calls):
        steps += passages.read(call(index, id=f"c{index}", function={"name": name}))
        for letter in arguments:
            steps += passages.read(call(index, function={"arguments": letter}))
    steps += passages.read(part(finish_reason="stop"))
    steps += passages.finish()
    message = EngineMessage(
        content=said,
        reasoning=thought,
        tool_calls=[
            EngineToolCall(f"c{n}", EngineFunctionCall(*each)) for n, each in enumerate(calls)
        ],
    )
    whole = content_blocks_of(EngineChoice(0, message))
    assert [(p.kind, p.index, p.id, p.name, p.text) for p in passages.closed] == [
        (p.kind, p.index, p.id, p.name, p.text) for p in whole
    ]
    told = [(step.action, step.block.index) for step in steps if step.action != "go_on"]
    assert told == [(does, p.index) for p in whole for does in ("open", "close")]


def reasoning(text: str) -> ChoiceDelta:
    return part(delta={"reasoning": text})


def test_a_call_that_is_over_does_not_go_on() -> None:
    passages = ContentBlockSplitter()
    passages.read(call(0, id="a", function={"name": "f"}))
    passages.read(call(1, id="b", function={"name": "g"}))
    with pytest.raises(InvalidEngineResponse):
        passages.read(call(0, function={"arguments": "{}"}))


def test_an_answer_without_an_ending_is_none() -> None:
    passages = ContentBlockSplitter()
    passages.read(part(delta={"content": "x"}))
    with pytest.raises(InvalidEngineResponse):
        passages.finish()
