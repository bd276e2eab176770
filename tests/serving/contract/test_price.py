"""Each meter is rounded by itself, a hold covers whatever follows, and a band takes it all."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.price import TokenCharge, band_of, charge, worst_case_nanos

pytestmark = pytest.mark.unit
NANOS = st.one_of(st.integers(0, 3_000_000), st.integers(0, 10**12))
TOKENS = st.one_of(st.integers(0, 12), st.integers(0, 10**6))
RULES = st.sampled_from([1, 2])


@dataclass(frozen=True)
class Price:
    input_nanos: int
    cached_input_nanos: int
    output_nanos: int
    input_tokens_min: int = 0


@st.composite
def prices(draw):
    full = draw(NANOS)
    return Price(full, draw(st.integers(0, full)), draw(NANOS))


@st.composite
def schedules(draw):
    floors = [0, *sorted(draw(st.sets(st.integers(1, 200), max_size=3)))]
    return tuple(replace(draw(prices()), input_tokens_min=floor) for floor in floors)


@st.composite
def counts(draw):
    tokens = draw(TOKENS)
    cached = draw(st.integers(0, tokens))
    return {
        "input_tokens": tokens,
        "cached_input_tokens": cached,
        "output_tokens": draw(TOKENS),
    }


def tokens(uncached: int, cached: int, output: int) -> dict[str, int]:
    return {
        "input_tokens": uncached + cached,
        "cached_input_tokens": cached,
        "output_tokens": output,
    }


LIST = Price(150_000_000, 75_000_000, 600_000_000)
HALF = Price(500_000, 500_000, 500_000)
GOLDEN = [
    # price, (uncached, cached, output), rule: input, cached input, output nanos
    (LIST, (600, 400, 20), 2, (90_000, 30_000, 12_000)),  # 600*150, 400*75, 20*600
    (LIST, (600, 400, 20), 1, (90_000, 30_000, 12_000)),  # whole nanos: the rules agree
    (LIST, (0, 1000, 0), 2, (0, 75_000, 0)),  # 1000*75
    (LIST, (0, 0, 0), 2, (0, 0, 0)),
    (HALF, (1, 1, 1), 2, (1, 1, 1)),  # 0.5 up, three times
    (HALF, (1, 1, 1), 1, (1, 0, 1)),  # running sums 0.5, 1, 1.5 round to 1, 1, 2
    (HALF, (1, 0, 1), 2, (1, 0, 1)),  # 0.5 + 0.5: one nano dearer than rule 1
    (HALF, (1, 0, 1), 1, (1, 0, 0)),  # 1.0 in all
    (Price(499_999, 0, 1), (1, 0, 1), 2, (0, 0, 0)),  # just under a half goes down
    (Price(499_999, 0, 1), (1, 0, 1), 1, (0, 0, 1)),  # 0.5 in all goes up
    (Price(333_333, 100_000, 10**12), (7, 3, 2), 2, (2, 0, 2_000_000)),  # 2.33, 0.3, 2M
]


@pytest.mark.parametrize(("price", "counted", "rule", "nanos"), GOLDEN)
def test_worked_examples(price, counted, rule, nanos):
    due = charge(price, **tokens(*counted), rating=rule)
    assert due == TokenCharge(*nanos)
    assert due.total_nanos == sum(nanos)


@given(prices(), counts())
def test_each_meter_is_within_half_a_nano_of_tokens_times_price(price, counted):
    due = charge(price, **counted)
    uncached = counted["input_tokens"] - counted["cached_input_tokens"]
    for nanos, count, per_million in (
        (due.input_nanos, uncached, price.input_nanos),
        (due.cached_input_nanos, counted["cached_input_tokens"], price.cached_input_nanos),
        (due.output_nanos, counted["output_tokens"], price.output_nanos),
    ):
        assert -500_000 <= count * per_million - nanos * 1_000_000 < 500_000 or (
            nanos * 1_000_000 - count * per_million == 500_000
        )


@given(prices(), counts())
def test_the_older_rule_rounds_the_sum_once_and_its_parts_add_up(price, counted):
    due = charge(price, **counted, rating=1)
    uncached = counted["input_tokens"] - counted["cached_input_tokens"]
    millionths = (
        uncached * price.input_nanos
        + counted["cached_input_tokens"] * price.cached_input_nanos
        + counted["output_tokens"] * price.output_nanos
    )
    assert due.total_nanos == (millionths + 500_000) // 1_000_000
    assert min(due.input_nanos, due.cached_input_nanos, due.output_nanos) >= 0


@given(prices(), counts(), RULES)
def test_cached_input_costs_no_more_but_for_a_nano_of_rounding(price, counted, rule):
    cached = charge(price, **counted, rating=rule).total_nanos
    uncached = charge(price, **counted | {"cached_input_tokens": 0}, rating=rule).total_nanos
    assert cached <= uncached + (rule == 2)
    saved_millionths = counted["cached_input_tokens"] * (
        price.input_nanos - price.cached_input_nanos
    )
    if saved_millionths >= 1_000_000 or rule == 1:
        assert cached <= uncached


def test_the_nano_of_rounding_is_real():
    """At half a nano a token, cached or not, a split of two tokens rounds up twice."""
    assert charge(HALF, **tokens(2, 0, 0)).total_nanos == 1
    assert charge(HALF, **tokens(1, 1, 0)).total_nanos == 2


HOLDS = st.fixed_dictionaries(
    {
        "input_tokens_max": st.integers(0, 300),
        "output_tokens_max": st.integers(0, 12),
        "choices": st.integers(1, 4),
    }
)


@given(schedules(), HOLDS, RULES, st.data())
def test_no_charge_exceeds_its_hold(schedule, hold, rule, data):
    input_tokens = data.draw(st.integers(0, hold["input_tokens_max"]))
    due = charge(
        band_of(schedule, input_tokens),
        input_tokens=input_tokens,
        cached_input_tokens=data.draw(st.integers(0, input_tokens)),
        output_tokens=data.draw(st.integers(0, hold["output_tokens_max"] * hold["choices"])),
        rating=rule,
    )
    assert due.total_nanos <= worst_case_nanos(schedule, **hold)


def test_a_hold_rounds_each_meter_up_and_adds_a_nano_for_the_cached_split():
    hold = {"input_tokens_max": 3, "output_tokens_max": 1, "choices": 3}
    # 1.5 up to 2, a nano for the split, 1.5 up to 2
    assert worst_case_nanos((HALF,), **hold) == 5
    # cached input is free, or whole nanos a token: no second part to round
    assert worst_case_nanos((replace(HALF, cached_input_nanos=0),), **hold) == 4
    assert worst_case_nanos((replace(HALF, cached_input_nanos=1_000_000),), **hold) == 5  # 3 + 2
    assert worst_case_nanos((Price(0, 0, 0),), **hold) == 0


BANDS = (LIST, replace(LIST, input_tokens_min=200, input_nanos=300_000_000))


@pytest.mark.parametrize(("count", "floor"), [(0, 0), (199, 0), (200, 200), (10**6, 200)])
def test_a_band_begins_at_its_own_tokens(count, floor):
    assert band_of(BANDS, count).input_tokens_min == floor


@pytest.mark.parametrize(
    ("input_tokens_max", "nanos"),
    [
        (199, 29_850),  # 199 * 150
        (200, 60_000),  # the dearer band takes the whole request: 200 * 300
        (300, 90_000),
    ],
)
def test_a_hold_takes_the_dearest_band_it_can_reach(input_tokens_max, nanos):
    held = {"output_tokens_max": 0, "choices": 1}
    assert worst_case_nanos(BANDS, input_tokens_max=input_tokens_max, **held) == nanos


def test_a_cheaper_band_further_up_lowers_no_hold():
    falling = (LIST, replace(BANDS[1], input_nanos=75_000_000))
    held = {"output_tokens_max": 0, "choices": 1}
    assert worst_case_nanos(falling, input_tokens_max=200, **held) == 30_000  # 200 * 150


@pytest.mark.parametrize(
    ("counted", "rule", "words"),
    [
        ((1, 2, 0), 2, "cached_input_tokens is 2"),
        ((-1, 0, 0), 2, "never negative"),
        ((1, 0, 0), 3, "rating is 3"),
    ],
)
def test_what_cannot_be_is_refused(counted, rule, words):
    names = ("input_tokens", "cached_input_tokens", "output_tokens")
    with pytest.raises(ValueError, match=words):
        charge(LIST, **dict(zip(names, counted, strict=True)), rating=rule)


def test_a_hundred_thousand_charges_sum_exactly():
    charges = [charge(LIST, **tokens(n - n // 3, n // 3, n % 97)) for n in range(100_000)]
    expected = sum((n - n // 3) * 150 + n // 3 * 75 + n % 97 * 600 for n in range(100_000))
    assert sum(due.total_nanos for due in charges) == expected
