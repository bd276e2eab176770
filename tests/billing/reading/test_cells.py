"""Cells of CSV files: no spreadsheet runs them, and money is exact."""

import pytest

from billing.reading.exports import harmless, plain_dollars

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\tx"])
def test_formulas_are_quoted(text):
    assert harmless(text) == f"'{text}"


@pytest.mark.parametrize("cell", ["a=1", "", -5, None, 1.5])
def test_the_rest_is_left_alone(cell):
    assert harmless(cell) == cell


def test_money_for_machines_is_a_plain_number():
    assert plain_dollars(1_234_567_890_123) == "1234.567890123"
