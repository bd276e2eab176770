"""Cells of files: money for machines is exact."""

import pytest

from billing.reading.exports import plain_dollars

pytestmark = pytest.mark.unit


def test_money_for_machines_is_a_plain_number():
    assert plain_dollars(1_234_567_890_123) == "1234.567890123"
