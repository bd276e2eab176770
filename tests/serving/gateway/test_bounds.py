"""Every field that reaches an engine has its edges in the list that real vLLM is asked with."""

import json

import pytest

from serving.engine.vllm import CHOICES_MAX, STOP_STRINGS_MAX
from serving.gateway.dialects.anthropic.messages import MessagesDialect
from serving.gateway.dialects.base import Dialect
from serving.gateway.dialects.openai import chat, completions
from serving.gateway.dialects.openai.chat import ChatDialect
from serving.gateway.dialects.openai.completions import CompletionsDialect
from tests.fixtures import bounds, catalog

DIALECTS: list[Dialect] = [ChatDialect(), CompletionsDialect(), MessagesDialect()]


def test_the_list_holds_every_field_that_reaches_an_engine() -> None:
    assert set(bounds.CHAT) == set(chat.ENGINE_FIELDS)
    assert set(bounds.COMPLETIONS) == set(completions.ENGINE_FIELDS)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_each_edge_is_one_that_we_allow(dialect: Dialect) -> None:
    for body in bounds.requests(dialect.path):
        data = json.dumps(body | {"model": "demo"}).encode()
        assert dialect.inference(dialect.decode(data), body_bytes=len(data), model=catalog.model())


def test_an_engine_is_started_with_bounds_of_ours() -> None:
    assert len(bounds.STOPS) == STOP_STRINGS_MAX
    assert max(bounds.SAMPLING["n"]) == CHOICES_MAX
