"""A request costs its tokens times its prices, meter by meter; our own failures cost nothing."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.rate import rate
from serving.contract.price import charge

pytestmark = pytest.mark.unit
PRICES = st.integers(min_value=0, max_value=10**12)
TOKENS = st.integers(min_value=0, max_value=10**6)


@dataclass(frozen=True)
class Meters:
    input_nanos: int
    cached_input_nanos: int
    output_nanos: int


@st.composite
def meters(draw):
    full = draw(PRICES)
    return Meters(full, draw(st.integers(min_value=0, max_value=full)), draw(PRICES))


def made(**fields):
    values = {"cached_input_tokens": 0, "output_tokens": 0, "billable": True, "rating": 2}
    return SimpleNamespace(**values | fields)


@st.composite
def events(draw, billable=True):
    tokens = draw(TOKENS)
    cached = draw(st.integers(min_value=0, max_value=tokens))
    return made(
        input_tokens=tokens,
        cached_input_tokens=cached,
        output_tokens=draw(TOKENS),
        billable=billable,
        rating=draw(st.sampled_from([1, 2])),
    )


LIST = Meters(150_000_000, 75_000_000, 600_000_000)
GOLDEN = [
    # input, cached, output: nanos
    (1000, 400, 20, 132_000),  # 600*150 + 400*75 + 20*600 = 90,000 + 30,000 + 12,000
    (1000, 0, 20, 162_000),  # 1000*150 + 20*600
    (1000, 1000, 0, 75_000),  # 1000*75
    (0, 0, 0, 0),
]


@pytest.mark.parametrize(("tokens", "cached", "output", "nanos"), GOLDEN)
def test_worked_examples(tokens, cached, output, nanos):
    event = made(input_tokens=tokens, cached_input_tokens=cached, output_tokens=output)
    assert rate(event, LIST).charged_nanos == nanos


@pytest.mark.parametrize(("rating", "nanos"), [(1, 1), (2, 2)])
def test_an_event_is_charged_by_the_rule_it_names(rating, nanos):
    event = made(input_tokens=1, output_tokens=1, rating=rating)
    # 0.5 + 0.5 nanos: rule 1 rounds their sum, rule 2 each of them
    assert rate(event, Meters(500_000, 0, 500_000)).charged_nanos == nanos


def test_a_rule_that_is_not_known_is_not_guessed():
    with pytest.raises(ValueError, match="rating is 3"):
        rate(made(input_tokens=1, rating=3), LIST)


@given(events(billable=False), meters())
def test_our_own_failure_is_waived_to_the_nano(event, prices):
    billed = rate(SimpleNamespace(**vars(event) | {"billable": True}), prices)
    waived = rate(event, prices)
    assert (waived.charged_nanos, waived.waived_nanos) == (0, billed.charged_nanos)
    assert waived.charge == billed.charge


@given(events(), meters())
def test_billing_rates_as_the_gateway_charges(event, prices):
    due = charge(
        prices,
        input_tokens=event.input_tokens,
        cached_input_tokens=event.cached_input_tokens,
        output_tokens=event.output_tokens,
        rating=event.rating,
    )
    assert rate(event, prices).charge == due
