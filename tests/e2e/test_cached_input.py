"""A prompt seen before is cheaper, by exactly the price difference, and for its owner alone."""

import openai
import pytest

from serving.contract.price import charge
from tests.fixtures.books import Books
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.e2e

LONG_PROMPT = "Penstock meters every token once. " * 40 + "What is Penstock?"


def ask(stack, api_key: str):
    """Ask the long question; return the usage, the event's id and the cost in the header."""
    with openai.OpenAI(base_url=stack.api_base, api_key=api_key, max_retries=0) as client:
        raw = client.chat.completions.with_raw_response.create(
            model=stack.model,
            messages=[{"role": "user", "content": LONG_PROMPT}],
            max_tokens=16,
            temperature=0,
        )
    cost_nanos = int(raw.headers["x-penstock-cost-nanos"])
    return raw.parse().usage, raw.headers["x-request-id"], cost_nanos


def booked(books: Books, event_id: str) -> dict:
    wait_until(lambda: books.events([event_id]), seconds=60, what="the event is booked")
    return books.events([event_id])[event_id]


def test_the_second_time_costs_less_by_exactly_the_price_difference(stack) -> None:
    books, price = Books(stack.database_url), stack.price()
    first, first_id, first_nanos = ask(stack, stack.api_key)
    again, again_id, again_nanos = ask(stack, stack.api_key)

    assert first.prompt_tokens_details.cached_tokens == 0
    cached = again.prompt_tokens_details.cached_tokens
    assert cached > 0.8 * again.prompt_tokens
    assert (again.prompt_tokens, again.completion_tokens) == (
        first.prompt_tokens,
        first.completion_tokens,
    )
    for usage, event_id, nanos in (
        (first, first_id, first_nanos),
        (again, again_id, again_nanos),
    ):
        event = booked(books, event_id)
        assert event["charged_nanos"] == nanos
        assert event["cached_input_tokens"] == usage.prompt_tokens_details.cached_tokens
        due = charge(
            price,
            input_tokens=usage.prompt_tokens,
            cached_input_tokens=usage.prompt_tokens_details.cached_tokens,
            output_tokens=usage.completion_tokens,
        )
        assert nanos == due.total_nanos
    saved_millionths = cached * (price.input_nanos - price.cached_input_nanos)
    assert abs((first_nanos - again_nanos) * 1_000_000 - saved_millionths) < 1_000_000


def test_another_organization_never_finds_it_cached(stack) -> None:
    ask(stack, stack.api_key)
    stranger, _, _ = ask(stack, stack.tenant()["api_key"])
    assert stranger.prompt_tokens_details.cached_tokens == 0
