"""A request costs its tokens times its prices, rounded once; our own failures cost nothing."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.rate import lines, rate
from serving.contract.price import charge_nanos

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


@st.composite
def events(draw, billable=True):
    tokens = draw(TOKENS)
    cached = draw(st.integers(min_value=0, max_value=tokens))
    return SimpleNamespace(
        input_tokens=tokens,
        cached_input_tokens=cached,
        output_tokens=draw(TOKENS),
        billable=billable,
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
    event = SimpleNamespace(
        input_tokens=tokens, cached_input_tokens=cached, output_tokens=output, billable=True
    )
    assert rate(event, LIST).charged_nanos == nanos


def test_a_price_of_half_a_nano_rounds_up_once():
    event = SimpleNamespace(input_tokens=1, cached_input_tokens=0, output_tokens=1, billable=True)
    # 0.5 + 0.5 nanos are 1 nano; rounding each line would have charged 2
    assert rate(event, Meters(500_000, 0, 500_000)).charged_nanos == 1


@given(events(), meters())
def test_cached_input_never_costs_more(event, prices):
    uncached = SimpleNamespace(**vars(event) | {"cached_input_tokens": 0})
    assert rate(event, prices).charged_nanos <= rate(uncached, prices).charged_nanos


@given(events(billable=False), meters())
def test_our_own_failure_is_waived_to_the_nano(event, prices):
    billed = rate(SimpleNamespace(**vars(event) | {"billable": True}), prices)
    waived = rate(event, prices)
    assert (waived.charged_nanos, waived.waived_nanos) == (0, billed.charged_nanos)


@given(events(), meters())
def test_the_lines_add_up_to_the_charge(event, prices):
    millionths = sum(line.amount_millionths for line in lines(event, prices))
    assert (millionths + 500_000) // 1_000_000 == rate(event, prices).charged_nanos


def test_a_hundred_thousand_charges_sum_exactly():
    charges = [
        charge_nanos(LIST, input_tokens=n, cached_input_tokens=n // 3, output_tokens=n % 97)
        for n in range(100_000)
    ]
    expected = sum((n - n // 3) * 150 + n // 3 * 75 + n % 97 * 600 for n in range(100_000))
    assert sum(charges) == expected
