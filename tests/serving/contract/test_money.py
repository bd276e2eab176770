"""Money is shown as CONSOLE.md wants and rounded to cents in one place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.money import (
    cents,
    exact_dollars,
    format_dollars,
    parse_dollars,
)

pytestmark = pytest.mark.unit
ANY = st.integers(min_value=-(2**63) + 1, max_value=2**63 - 1)
NANOS = st.one_of(st.integers(-(10**10), 10**10), ANY)

SHOWN = [
    (0, "$0.00"),
    (1, "$0.000000001"),
    (12_300, "$0.0000123"),
    (132_000, "$0.000132"),
    (1_234_567, "$0.001235"),  # four significant digits under a cent
    (9_999_999, "$0.01"),  # 9.999999 thousandths round up to a cent
    (10_000_000, "$0.01"),
    (123_456_789, "$0.1235"),  # four decimals from a cent up
    (500_000_000, "$0.50"),
    (999_999_999, "$1.00"),
    (1_000_000_000, "$1.00"),
    (1_005_000_000, "$1.01"),  # two decimals from a dollar up, halves up
    (1_234_567_890_000, "$1,234.57"),
    (-12_300, "-$0.0000123"),
]


@pytest.mark.parametrize(("nanos", "text"), SHOWN)
def test_people_see_few_digits_and_no_exponent(nanos, text):
    assert format_dollars(nanos) == text


@pytest.mark.parametrize(
    ("nanos", "text"),
    [(1_234_567_890, "$1.23456789"), (5, "$0.000000005"), (0, "$0.00"), (-1, "-$0.000000001")],
)
def test_hover_shows_every_digit(nanos, text):
    assert exact_dollars(nanos) == text


@pytest.mark.parametrize(
    ("nanos", "whole_cents"),
    [(4_999_999, 0), (5_000_000, 1), (1_234_567_890, 123), (-5_000_000, -1), (-4_999_999, 0)],
)
def test_cents_are_rounded_once_halves_away_from_zero(nanos, whole_cents):
    assert cents(nanos) == whole_cents


@given(NANOS)
def test_a_correction_rounds_like_what_it_corrects(nanos):
    assert cents(-nanos) == -cents(nanos)


@given(NANOS)
def test_cents_are_within_half_a_cent(nanos):
    assert abs(cents(nanos) * 10_000_000 - nanos) <= 5_000_000


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_what_is_shown_exactly_reads_back(nanos):
    assert parse_dollars(exact_dollars(nanos).replace(",", "")) == nanos


@given(NANOS)
def test_what_people_see_is_off_by_half_a_percent_at_most(nanos):
    shown = parse_dollars(format_dollars(abs(nanos)).replace(",", ""))
    assert abs(shown - abs(nanos)) * 200 <= abs(nanos)


@pytest.mark.parametrize("text", ["", "-1", "1e3", "1.0000000001", "NaN", "1,5", "99999999999"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ValueError, match=r"amount|too much"):
        parse_dollars(text)
