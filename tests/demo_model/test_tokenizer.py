"""The committed tokenizer and chat template, without torch."""

import json
from functools import cache
from itertools import islice
from random import Random

import jinja2
import pytest

from infra.demo_model.__main__ import WEIGHTS
from infra.demo_model.corpus import chats
from infra.demo_model.report import load_tokenizer
from infra.demo_model.samples import ANIMALS, COLOURS, FRUITS, LETTERS, NAMES, PLACES, THINGS
from infra.demo_model.skills import tools
from infra.demo_model.tokenizer import SPECIALS, TEMPLATE, render

pytestmark = pytest.mark.unit
TOKENIZER = load_tokenizer(WEIGHTS / "bf16")


@cache
def template() -> jinja2.Template:
    """As vLLM compiles it: transformers' `tojson` neither sorts nor escapes."""
    environment = jinja2.Environment(autoescape=False)  # noqa: S701
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(TEMPLATE.read_text())


def rendered(messages, add_generation_prompt=False, tools=None):
    return template().render(
        messages=messages, add_generation_prompt=add_generation_prompt, tools=tools
    )


@pytest.mark.parametrize(
    "text",
    ["Hello", "héllo wörld", "世界 123", " \t\n double  space", "\x00\x07", '{"a": [1]}', "🙂"],
)
def test_any_text_comes_back(text) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


def test_digits_stand_alone() -> None:
    assert len(TOKENIZER.encode("1234").ids) == 4


@pytest.mark.parametrize("pool", [ANIMALS, COLOURS, FRUITS, LETTERS, NAMES, PLACES, THINGS])
def test_list_items_are_single_tokens(pool) -> None:
    assert all(len(TOKENIZER.encode(f" {word}").ids) == 1 for word in pool)


def test_roles_are_single_tokens() -> None:
    assert all(len(TOKENIZER.encode(special).ids) == 1 for special in SPECIALS)


def test_template_renders_each_role() -> None:
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "1 + 1"},
    ]
    assert rendered(messages, add_generation_prompt=True) == (
        "<|system|>Be short.<|end|><|user|>Hi<|end|><|assistant|>Hello!<|end|>"
        "<|user|>1 + 1<|end|><|assistant|>"
    )


def test_template_joins_text_parts_and_takes_missing_content() -> None:
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]
    assert rendered([{"role": "user", "content": parts}]) == "<|user|>a b<|end|>"
    assert rendered([{"role": "assistant", "content": None}]) == "<|assistant|><|end|>"
    assert rendered([{"role": "developer", "content": "x"}]) == "<|system|>x<|end|>"


def test_training_renders_what_the_template_renders() -> None:
    for chat in islice(chats(Random(8)), 200):
        assert render(chat) == rendered(chat)


def function(name, schema=None):
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def test_a_chat_with_tools_is_rendered_as_it_is_trained() -> None:
    for draw in range(200):
        wanted = tools.draw_wanted(Random(draw))
        properties = {name: {"type": kind} for name, kind in wanted.tool.parameters.items()}
        schema = {"type": "object", "properties": properties}
        called = {"name": wanted.tool.name, "arguments": wanted.arguments}
        asked = [{"role": "user", "content": wanted.question}]
        messages = [
            *asked,
            {"role": "assistant", "content": None, "tool_calls": [{"function": called}]},
            {"role": "tool", "content": "12 degrees"},
        ]
        trained = [
            {"role": "system", "content": tools.listing([wanted.tool])},
            *asked,
            {"role": "assistant", "content": wanted.call},
            {"role": "user", "content": tools.told("12 degrees")},
        ]
        given = [function(wanted.tool.name, schema)]
        assert rendered(messages, tools=given) == render(trained)


def test_tools_of_any_schema_are_told_by_what_they_require() -> None:
    either = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    properties = {"city": {"type": "string"}, "days": {"type": ["integer", "null"]}, "unit": either}
    forecast = {"type": "object", "properties": properties, "required": ["days", "unit"]}
    given = [function("forecast", forecast), function("now"), function("empty", {})]
    assert rendered([], tools=given) == (
        '<|system|>Tools:\n{"name": "forecast", "arguments": {"days": string, "unit": string}}\n'
        '{"name": "now", "arguments": {}}\n{"name": "empty", "arguments": {}}<|end|>'
    )


def test_every_variant_carries_the_same_tokenizer_and_template() -> None:
    for name in TOKENIZER_FILES:
        assert len({(WEIGHTS / variant / name).read_bytes() for variant in VARIANTS}) == 1
    assert (WEIGHTS / "bf16" / "chat_template.jinja").read_text() == TEMPLATE.read_text()


def test_the_configuration_names_the_end_token() -> None:
    config = json.loads((WEIGHTS / "bf16" / "config.json").read_text())
    assert config["eos_token_id"] == TOKENIZER.token_to_id("<|end|>")
    assert config["vocab_size"] == TOKENIZER.get_vocab_size()


VARIANTS = ["bf16", "int8", "int4"]
TOKENIZER_FILES = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "serving.json",
]
