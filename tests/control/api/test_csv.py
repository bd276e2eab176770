"""Cells of CSV files: no spreadsheet runs them."""

import pytest

from control.api.streaming import SignedAmount, csv_bytes, without_formula

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\tx", "\rx"])
def test_formulas_are_quoted(text: str) -> None:
    assert without_formula(text) == f"'{text}"


@pytest.mark.parametrize("cell", ["a=1", "", -5, None, 1.5, SignedAmount("-0.5")])
def test_the_rest_is_left_alone(cell: object) -> None:
    assert without_formula(cell) == cell


def test_lines_are_quoted_where_they_must_be() -> None:
    lines = [["a", SignedAmount("-0.5")], ['say "x", y', "=1"]]
    assert csv_bytes(lines) == b'a,-0.5\r\n"say ""x"", y",\'=1\r\n'
