"""Every field that reaches an engine has its edges in the list that real vLLM is asked with."""

import json

import pytest

from serving.engine.vllm import CHOICES_MAX, STOP_STRINGS_MAX
from serving.gateway.dialects import chat, completions
from serving.gateway.dialects.anthropic.route import Messages
from serving.gateway.dialects.chat import Chat
from serving.gateway.dialects.completions import Completions
from serving.gateway.dialects.dialect import Dialect
from tests.fixtures import bounds, catalog

DIALECTS: list[Dialect] = [Chat(), Completions(), Messages()]


def test_the_list_holds_every_field_that_reaches_an_engine() -> None:
    assert set(bounds.CHAT) == set(chat.ENGINE_FIELDS)
    assert set(bounds.COMPLETIONS) == set(completions.ENGINE_FIELDS)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_each_edge_is_one_that_we_allow(dialect: Dialect) -> None:
    for body in bounds.requests(dialect.path):
        data = json.dumps(body | {"model": "demo"}).encode()
        assert dialect.job(dialect.decode(data), body_bytes=len(data), model=catalog.model())


def test_an_engine_is_started_with_bounds_of_ours() -> None:
    assert len(bounds.STOPS) == STOP_STRINGS_MAX
    assert max(bounds.SAMPLING["n"]) == CHOICES_MAX
