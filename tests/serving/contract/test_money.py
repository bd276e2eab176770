"""Money is shown as CONSOLE.md wants and rounded to cents in one place."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.money import (
    AmbiguousAmount,
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
def test_what_is_shown_reads_back(nanos):
    for shown in (exact_dollars(nanos), format_dollars(nanos)):
        for text in (shown, shown.removeprefix("$"), shown.replace(",", "")):
            assert exact_dollars(parse_dollars(text)) == shown
    assert parse_dollars(exact_dollars(nanos)) == nanos


@given(
    st.integers(min_value=0, max_value=2**63 - 1),
    st.sampled_from([",", " ", "\u00a0", "\u202f", "\u2009", "'", "\u2019"]),
    st.sampled_from(["$", "US$ ", "$\u00a0", " ", "", "\u200e"]),
)
def test_an_amount_with_cents_reads_the_same_with_any_separators(nanos, blank, currency):
    whole, part = divmod(nanos // 10_000_000, 100)
    expected = (whole * 100 + part) * 10_000_000
    assert parse_dollars(f"{currency}{whole:,}.{part:02}".replace(",", blank)) == expected
    if whole >= 1000:
        with_comma = f"{whole:,}".replace(",", "." if blank == "," else blank) + f",{part:02}"
        assert parse_dollars(currency + with_comma) == expected


@given(NANOS)
def test_what_people_see_is_off_by_half_a_percent_at_most(nanos):
    shown = parse_dollars(format_dollars(abs(nanos)))
    assert abs(shown - abs(nanos)) * 200 <= abs(nanos)


@pytest.mark.parametrize(
    ("text", "dollars"),
    [
        ("$1,000", "1000"), ("1,000", "1000"), ("$250", "250"), ("1,234,567", "1234567"),
        ("1.234.567", "1234567"), ("12,34,567.5", "1234567.5"), ("1.000,50", "1000.5"),
        ("1000,5", "1000.5"), ("0,5", "0.5"), ("0.500", "0.5"), ("1000.500", "1000.5"),
        ("1 000,500", "1000.5"), ("1.234", "1.234"), ("1.2340", "1.234"), ("5 USD", "5"),
        ("5 $", "5"), ("  7.25\t", "7.25"),
    ],
)  # fmt: skip
def test_an_amount_with_one_reading_is_taken(text, dollars):
    assert parse_dollars(text) == Decimal(dollars) * 10**9


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("1.000", ("$1.00", "$1,000.00")), ("$12.500", ("$12.50", "$12,500.00")),
        ("1,5", ("$1.50", "$15.00")), ("1,50", ("$1.50", "$150.00")),
        ("100,0000", ("$100.00", "$1,000,000.00")),
    ],
)  # fmt: skip
def test_an_amount_with_two_readings_is_refused_with_both(text, readings):
    with pytest.raises(AmbiguousAmount) as refused:
        parse_dollars(text)
    assert tuple(map(exact_dollars, refused.value.readings)) == readings
    assert all(reading in str(refused.value) for reading in readings)


@pytest.mark.parametrize(
    "text",
    [
        "", "-1", "1e3", "1.0000000001", "NaN", "99999999999", "9300000000", "1,00,0", "1 5",
        "1 0000", "1.000,000,000", "1,000.5.5", "$", "5 EUR", "€5", "0,500,000", "5.", "\u0665",
        "1" + " " * 100_000 + "x",
    ],
)  # fmt: skip
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ValueError, match=r"amount|too much"):
        parse_dollars(text)
