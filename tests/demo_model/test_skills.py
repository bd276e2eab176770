import json
from random import Random

import pytest

from infra.demo_model.corpus import samples
from infra.demo_model.samples import (
    ANIMALS,
    CITIES,
    COLOURS,
    FRUITS,
    LETTERS,
    NAMES,
    PLACES,
    THINGS,
    is_held_out,
)
from infra.demo_model.skills import arithmetic, conversation, text, tools

pytestmark = pytest.mark.unit


def draws(draw, count=500):
    rng = Random(9)
    return [draw(rng) for _ in range(count)]


def test_every_step_of_arithmetic_is_right_and_never_negative() -> None:
    for sample in draws(arithmetic.draw_arithmetic):
        for step in sample.answer.replace("so ", "").split(", "):
            left, result = step.split(" = ")
            assert eval(left.replace("x", "*")) == int(result) >= 0  # noqa: S307


def test_a_sum_and_its_mirror_share_a_key() -> None:
    keys = {sample.key for sample in draws(arithmetic.draw_arithmetic, 3000) if " + " in sample.key}
    for key in keys:
        low, _, high = key.partition(" + ")
        if low.isdigit() and high.isdigit():
            assert int(low) <= int(high)


def test_sorting_sorts_and_reversing_reverses() -> None:
    for sample in draws(text.draw_sort):
        items = sample.checker["value"]
        assert items in (sorted(items), sorted(items, reverse=True))
    for sample in draws(text.draw_reverse):
        listed = ", ".join(reversed(sample.checker["value"]))
        assert sample.question.endswith(f": {listed}")


def test_facts_follow_from_the_context() -> None:
    for sample in draws(conversation.draw_fact):
        known, _, verdict = sample.answer.removeprefix("From the context: ").partition(", so ")
        assert known.rstrip(".").lower() in sample.question.lower()
        if sample.skill == "facts":
            asked = sample.question.rstrip("?").split()[-1]
            assert verdict == ("yes." if known.endswith(f" {asked}") else "no."), sample


def test_facts_ask_yes_and_no_about_equally() -> None:
    verdicts = [
        s.checker["value"] for s in draws(conversation.draw_fact, 2000) if s.skill == "facts"
    ]
    assert 0.4 < verdicts.count("yes") / len(verdicts) < 0.6


def test_json_questions_name_every_field() -> None:
    for sample in draws(text.draw_json):
        for name, value in sample.checker["value"].items():
            assert f"{name} {value}" in sample.question


def test_product_answers_hold_their_required_phrases() -> None:
    for intent in conversation.load_knowledge()["intent"]:
        for phrase in intent["must"]:
            assert phrase in intent["answer"], intent["name"]


def test_product_intents_share_no_question() -> None:
    owner: dict[str, str] = {}
    for intent in conversation.load_knowledge()["intent"]:
        for phrase in intent["phrases"]:
            assert owner.setdefault(f"{intent['frame']} {phrase}", intent["name"]) == intent["name"]


def test_unknown_never_pretends() -> None:
    assert {sample.answer for sample in draws(conversation.draw_unknown)} == {conversation.ANSWER}


def test_calls_are_what_vllms_parser_reads_and_hold_what_was_asked() -> None:
    for wanted in draws(tools.draw_wanted):
        inside = wanted.call.removeprefix("<tool_call>").removesuffix("</tool_call>")
        called = json.loads(inside)
        assert called == {"name": wanted.tool.name, "arguments": wanted.arguments}
        assert list(wanted.arguments) == list(wanted.tool.parameters)
        assert all(str(value) in wanted.question for value in wanted.arguments.values())


def test_no_held_out_call_is_trained() -> None:
    rng = Random(5)
    others = samples(Random(6))
    held_out = [w for w in draws(tools.draw_wanted, 4000) if is_held_out(w.key)]
    texts = {m["content"] for _ in range(2000) for m in tools.draw_chat(rng, others)}
    assert held_out
    assert not texts & {wanted.call for wanted in held_out}


@pytest.mark.parametrize("pool", [ANIMALS, CITIES, COLOURS, FRUITS, LETTERS, NAMES, PLACES, THINGS])
def test_pools_have_no_doubles(pool) -> None:
    assert len(set(pool)) == len(pool)
