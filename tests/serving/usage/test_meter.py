"""The one meter: who pays, for what."""

from datetime import UTC, datetime
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.price import RATING
from serving.contract.usage import BILLABLE, Outcome
from serving.engine.events import (
    CompletionTokensDetails,
    EngineUsage,
    PromptTokensDetails,
    TokenUsage,
)
from serving.usage.meter import MeterRecord, make_event, price_of
from tests.fixtures.catalog import price

METERED = MeterRecord(
    "e",
    "gw",
    "org",
    "proj",
    "key",
    "mdl",
    "dep",
    (price(),),
    "chat",
    datetime.now(UTC),
    False,
    None,
)
COUNTS = st.integers(0, 10**6)


@pytest.mark.parametrize("outcome", get_args(Outcome))
def test_only_billable_outcomes_cost_anything(outcome: Outcome) -> None:
    tokens = TokenUsage(input=1_000, cached_input=400, output=20)
    # 600 * 150 + 400 * 75 + 20 * 600 nanos
    assert price_of(METERED, tokens, outcome) == (132_000 if outcome in BILLABLE else 0)


@pytest.mark.parametrize(
    ("tokens", "price_id", "nanos"),
    [
        (TokenUsage(input=199), "short", 29_850),  # 199 * 150
        (TokenUsage(input=200), "long", 60_000),  # all 200 at 300
    ],
)
def test_the_band_goes_by_the_input_tokens_there_were(
    tokens: TokenUsage, price_id: str, nanos: int
) -> None:
    schedule = (
        price(price_id="short"),
        price(price_id="long", input_tokens_min=200, input_nanos=300_000_000),
    )
    metered = msgspec.structs.replace(METERED, schedule=schedule)
    assert make_event(metered, outcome="completed", tokens=tokens).price_id == price_id
    assert price_of(metered, tokens, "completed") == nanos


def test_an_event_names_the_rule_it_was_charged_by() -> None:
    assert make_event(METERED, outcome="completed").rating == RATING


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_whatever_an_engine_says_an_event_can_be_made(
    prompt: int, cached: int, completion: int, reasoning: int
) -> None:
    usage = EngineUsage(
        prompt, completion, PromptTokensDetails(cached), CompletionTokensDetails(reasoning)
    )
    event = make_event(METERED, outcome="completed", tokens=TokenUsage.of(usage))
    assert event.cached_input_tokens == min(cached, prompt)
    assert event.reasoning_tokens == min(reasoning, completion)


def test_absent_details_are_zero() -> None:
    assert TokenUsage.of(EngineUsage(5, None)) == TokenUsage(input=5)
