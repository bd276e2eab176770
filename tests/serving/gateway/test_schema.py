"""Request bodies: closed, bounded, and never a crash."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.price import worst_case_nanos
from serving.contract.prompt import PromptBound
from serving.engine.events import TokenUsage
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.dialects.json_schema import DEPTH_MAX, PATTERN_SIZE_MAX, SchemaValidator
from serving.gateway.dialects.openai import completions
from serving.gateway.dialects.openai.chat import ENGINE_FIELDS, ChatDialect
from serving.gateway.dialects.openai.chat_request import ChatRequest
from serving.gateway.dialects.openai.completions import (
    CompletionRequest,
    CompletionsDialect,
)
from serving.gateway.errors import BadRequest
from tests.fixtures.catalog import model, price
from tests.fixtures.engine_requests import told_to_vllm

CHAT, COMPLETIONS = ChatDialect(), CompletionsDialect()
USER = {"role": "user", "content": "hi"}
ASK: dict[str, Any] = {"model": "demo", "messages": [USER]}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


TOOL = {"type": "function", "function": {"name": "f"}}


def allowed(name: str) -> dict[str, Any]:
    named = {"type": "function", "function": {"name": name}}
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}


def job(body: dict[str, Any], endpoint: Any = CHAT) -> InferenceRequest:
    data = json.dumps(body).encode()
    request = endpoint.decode(data)
    return endpoint.inference(request, body_bytes=len(data), model=model())


def refused(body: dict[str, Any], endpoint: Any = CHAT) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        job(body, endpoint)
    return caught.value


def with_schema(schema: Any) -> dict[str, Any]:
    named = {"name": "answer", "schema": schema}
    return ASK | {"response_format": {"type": "json_schema", "json_schema": named}}


@pytest.mark.parametrize(
    "field",
    [
        "priority",
        "cache_salt",
        "kv_transfer_params",
        "prompt_logprobs",
        "chat_template",
        "chat_template_kwargs",
        "request_id",
        "vllm_xargs",
        "lora_request",
        "prompt_embeds",
        "structured_outputs",
        "use_beam_search",
        "echo",
        "stop_token_ids",
        "api_base",
    ],
)
def test_what_is_ours_alone_is_an_unknown_parameter(field: str) -> None:
    error = refused(ASK | {field: 1})
    assert (error.code, error.param) == ("unknown_parameter", field)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"n": 9}, "n"),
        ({"n": 2, "temperature": 0}, "n"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop"),
        ({"seed": 2**63}, "seed"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 257}, "max_tokens"),
        ({"max_tokens": 513}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens"),
        ({"min_tokens": 20, "max_tokens": 10}, "min_tokens"),
        ({"logit_bias": {"1024": 1}}, "logit_bias"),
        ({"logit_bias": {"AI": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"٣": 1}}, "logit_bias"),
        ({"logit_bias": {str(n): 1 for n in range(301)}}, "logit_bias"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": []}, "tools"),
        ({"messages": []}, "messages"),
        ({"store": True}, "store"),
        ({"service_tier": "scale"}, "service_tier"),
        ({"tools": [TOOL], "tool_choice": allowed("g")}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "custom"}}, None),
    ],
)
def test_bounds_are_named(fields: dict[str, Any], param: str | None) -> None:
    error = refused(ASK | fields)
    assert param is None or error.param == param


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    body = json.dumps(ASK | {"temperature": 0}).replace("0}", number + "}")
    with pytest.raises(BadRequest):
        CHAT.decode(body.encode())


def test_images_and_files_are_refused_in_words() -> None:
    part = {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}
    error = refused(ASK | {"messages": [USER | {"content": [part]}]})
    assert error.param == "messages[0].content[0].type"
    assert "only text" in error.message


def test_a_key_given_twice_reaches_the_engine_once() -> None:
    data = b'{"model":"demo","n":9999,"n":2,"messages":[{"role":"user","content":"hi"}]}'
    try:
        request = CHAT.decode(data)
    except BadRequest:
        return
    assert request.n == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deep_nesting_is_a_refusal_not_a_crash(opening: bytes) -> None:
    for depth in (17, 900, 100_000):
        head = json.dumps(with_schema(0)).encode()[:-1]
        data = head.replace(b'"schema": 0', b'"schema": {"x": ' + opening * depth)
        with pytest.raises(BadRequest):
            CHAT.decode(data)


@given(st.dictionaries(st.sampled_from(list(ChatRequest.__struct_fields__)), JSON_VALUES))
def test_any_json_is_taken_or_refused_in_words(fields: dict[str, Any]) -> None:
    try:
        job(json.loads(json.dumps(ASK | fields)))
    except BadRequest as error:
        assert error.code


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused_in_words(data: bytes) -> None:
    for dialect in (CHAT, COMPLETIONS):
        with pytest.raises(BadRequest):
            dialect.decode(data)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        {"properties": {"a": {"$ref": "#"}}, "anyOf": [{"$ref": "#/properties/a"}]},
        {
            "allOf": [{"$ref": "#/$defs/b"}],
            "$defs": {"b": {"oneOf": [{"type": "null"}, {"$ref": "#"}]}},
        },
        {"items": {"anyOf": [{"$ref": "#/items"}, {"type": "null"}]}},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "#/$defs/missing"},
        {"$dynamicRef": "#x"},
        {"type": "text"},
        {"enum": []},
        {"anyOf": []},
        {"type": "string", "pattern": "foo**"},
        {"type": "string", "pattern": "a" * 1_001},
        {"type": "string", "pattern": "(a{1,9999}){1,9999}"},
        {"type": "string", "pattern": "((a{1,100}){1,100}){1,100}"},
        {"type": "string", "pattern": "((" * 20 + "a" + "{9}){9})" * 20},
        {"type": "string", "pattern": "(" * 999},
        {"type": "object", "properties": {"a": False}},
        {"type": "array", "items": [{"type": "string"}]},
        {"$ref": "#/enum/00", "enum": [{}]},
        {"$ref": "#/enum/" + "1" * 5_000, "enum": [{}]},
        {"type": "object", "properties": {str(n): {} for n in range(2_000)}},
        {"enum": ["x" * 70_000]},
    ],
)
def test_schemas_that_hurt_an_engine_are_refused(schema: dict[str, Any]) -> None:
    assert refused(with_schema(schema)).param == "response_format.json_schema.schema"
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    assert refused(ASK | {"tools": [tool]}).param == "tools[0].function.parameters"


def test_counts_are_bounded_where_an_engine_compiles_them() -> None:
    """Elsewhere they are told to the model alone: agents bound texts by 500,000 characters."""
    schema = {"type": "array", "maxItems": 10**9}
    assert refused(with_schema(schema)).param == "response_format.json_schema.schema"
    function = {"name": "f", "parameters": schema}
    tools = {"tools": [{"type": "function", "function": function}]}
    job(ASK | tools)
    param = "tools[0].function.parameters"
    assert refused(ASK | tools | {"tool_choice": "required"}).param == param
    strict = {"tools": [{"type": "function", "function": function | {"strict": True}}]}
    assert refused(ASK | strict).param == param


@pytest.mark.parametrize("pattern", ["[[a]", "[a&&b]", "[a||b]", "[a~~b]"])
def test_what_another_python_may_read_otherwise_is_taken_without_a_warning(pattern: str) -> None:
    SchemaValidator().check({"type": "string", "pattern": pattern}, "p")


def test_a_pattern_may_be_as_large_as_its_bound() -> None:
    SchemaValidator().check({"type": "string", "pattern": f"a{{{PATTERN_SIZE_MAX}}}"}, "p")
    with pytest.raises(BadRequest):
        SchemaValidator().check({"type": "string", "pattern": f"a{{{PATTERN_SIZE_MAX + 1}}}"}, "p")


def test_a_schema_may_be_sixteen_deep_and_share_definitions() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range((DEPTH_MAX - 2) // 2):
        deep = {"properties": {"a": deep}}
    SchemaValidator().check(deep, "p")
    with pytest.raises(BadRequest):
        SchemaValidator().check({"properties": {"a": {"properties": {"a": deep}}}}, "p")
    point = {"$defs": {"p": {"type": "number"}}}
    SchemaValidator().check(point | {"properties": {n: {"$ref": "#/$defs/p"} for n in "xyz"}}, "p")
    SchemaValidator().check({"properties": {"type": {"type": "string"}, "pattern": {}}}, "p")


NODE = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
TREE = NODE["properties"] | {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}
RECURSIVE = {
    "a tree": {"$ref": "#/$defs/node", "$defs": {"node": NODE | {"properties": TREE}}},
    "a list by its next": NODE
    | {"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
    "lists of lists": {"type": "array", "items": {"$ref": "#"}},
    "a map of maps": {"type": "object", "additionalProperties": {"$ref": "#"}},
    "a property called $defs": {"properties": {"$defs": {"$ref": "#"}}},
    "two that hold each other": {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}},
            "b": {"type": "array", "items": {"$ref": "#/$defs/a"}},
        },
    },
}


@pytest.mark.parametrize("schema", RECURSIVE.values(), ids=RECURSIVE)
def test_a_schema_may_refer_to_itself_by_a_property_or_an_item(schema: dict[str, Any]) -> None:
    format_ = told_to_vllm(job(with_schema(schema)))["response_format"]
    assert format_["json_schema"]["schema"] == schema


def test_what_refers_to_itself_is_bounded_like_everything_else() -> None:
    """Each of twenty refers to all of them: written out, there are more than a million nodes."""
    names = [str(n) for n in range(20)]
    every = {"properties": {name: {"$ref": f"#/$defs/{name}"} for name in names}}
    schema = {"$ref": "#/$defs/0", "$defs": dict.fromkeys(names, every)}
    copied = json.loads(json.dumps(schema))
    assert "larger than 20000 nodes" in refused(with_schema(copied)).message


def test_the_engine_hears_only_what_we_rebuilt() -> None:
    labels = {"user": "u", "metadata": {"a": "b"}, "safety_identifier": "s", "store": False}
    told = told_to_vllm(job(ASK | labels | {"stop": ["x"], "stream": True}))
    ours = {"model", "messages", "max_tokens", "stream", "stream_options", "cache_salt"}
    assert set(told) <= ours | set(ENGINE_FIELDS)
    assert (told["model"], told["cache_salt"]) == ("var_demo", "salt")
    assert told["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_developers_speak_as_system_to_chat_templates() -> None:
    told = told_to_vllm(job(ASK | {"messages": [{"role": "developer", "content": "x"}, USER]}))
    assert [message["role"] for message in told["messages"]] == ["system", "user"]


def test_engine_fields_are_fields() -> None:
    assert set(ENGINE_FIELDS) <= set(ChatRequest.__struct_fields__)
    assert set(completions.ENGINE_FIELDS) <= set(CompletionRequest.__struct_fields__)


@given(
    st.text(min_size=1, max_size=300),
    st.integers(1, 256) | st.none(),
    st.integers(1, 8),
    st.booleans(),
)
def test_the_hold_is_never_less_than_the_final_cost(
    text: str, asked: int | None, n: int, completion: bool
) -> None:
    extra: dict[str, Any] = {"n": n} | ({"max_tokens": asked} if asked else {})
    if completion:
        made = job({"model": "demo", "prompt": text} | extra, COMPLETIONS)
    else:
        made = job(ASK | {"messages": [USER | {"content": text}]} | extra)
    told = told_to_vllm(made)
    most = worst_case_nanos(
        (price(),),
        input_tokens_max=min(512, len(text.encode()) + 4),
        output_tokens_max=told["max_tokens"],
        choices=n,
    )
    input_tokens_max = made.input_tokens_max(PromptBound(growth=1, template_tokens=0))
    assert made.worst_case_nanos((price(),), input_tokens_max) >= most


@pytest.mark.parametrize(
    ("prompt", "param"),
    [([-1], "prompt[0]"), ([1_024], "prompt"), (["a", 1], "prompt"), ([], "prompt")],
)
def test_token_prompts_are_bounded_on_both_ends(prompt: Any, param: str) -> None:
    error = refused({"model": "demo", "prompt": prompt}, COMPLETIONS)
    assert error.param is not None
    assert error.param.startswith(param.split("[", maxsplit=1)[0])


def test_a_prompt_whose_tokens_are_known_must_fit_with_its_answer() -> None:
    body = {"model": "demo", "prompt": [5] * 400, "max_tokens": 113}
    error = refused(body, COMPLETIONS)
    assert (error.code, error.param) == ("context_length_exceeded", "prompt")
    assert error.message == (
        "This model's maximum context length is 512 tokens. However, you requested 513 tokens"
        " (400 in the prompt, 113 in the completion). Please reduce the length of the prompt or"
        " completion."
    )
    assert job(body | {"max_tokens": 112}, COMPLETIONS).engine_request.output_tokens_max == 112


def test_lists_of_token_ids_are_several_prompts() -> None:
    made = job({"model": "demo", "prompt": [[5, 6], [7]], "n": 2}, COMPLETIONS)
    assert (made.engine_request.prompts, made.engine_request.choices) == (2, 4)
    assert told_to_vllm(made)["prompt"] == [[5, 6], [7]]
    for prompt in ([[5], 6], [[5], "a"], [[]], [[1_024]], [[1]] * 9, [[5] * 497, [5]]):
        assert refused({"model": "demo", "prompt": prompt}, COMPLETIONS).param.startswith("prompt")


def test_nothing_but_the_prompt_may_be_asked_for() -> None:
    made = job({"model": "demo", "prompt": "x", "echo": True, "max_tokens": 0}, COMPLETIONS)
    assert told_to_vllm(made)["max_tokens"] == 0
    assert made.worst_case_nanos((price(),), 512) == 512 * 150 + 600
    assert made.bounded_usage(TokenUsage(input=1, output=5), 512).output == 1
    assert refused({"model": "demo", "prompt": "x", "max_tokens": 0}, COMPLETIONS).param


@pytest.mark.parametrize("field", ["suffix", "prompt_logprobs", "truncate_prompt_tokens"])
def test_completions_are_closed_too(field: str) -> None:
    assert refused({"model": "demo", "prompt": "x", field: 1}, COMPLETIONS).param == field
