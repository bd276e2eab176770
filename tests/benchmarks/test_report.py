"""Figures are shown with their spread, and ratios with both terms."""

import json

import pytest

from tests.benchmarks.report import Report, Row, Table, difference, percentile, ratio

pytestmark = pytest.mark.unit

DIRECT = Row("p50", "direct", "ms", [0.10, 0.30, 0.20])
OURS = Row("p50", "Penstock", "ms", [0.30, 0.60, 0.50])


def test_a_row_shows_its_median_and_quartiles() -> None:
    assert DIRECT.cells == ["p50", "direct", "0.200", "0.150 to 0.250", "ms"]
    assert Row("once", "direct", "s", [3.0]).cells[2:4] == ["3.000", "3.000 to 3.000"]


def test_differences_and_ratios_are_taken_round_by_round() -> None:
    assert difference("added", OURS, DIRECT).values == pytest.approx([0.2, 0.3, 0.3])
    assert ratio("ratio", OURS, DIRECT).values == pytest.approx([3.0, 2.0, 2.5])


def test_a_percentile_is_a_value_that_was_seen() -> None:
    values = [float(number) for number in range(200, 0, -1)]
    assert [percentile(values, percent) for percent in (50, 99, 100)] == [100, 198, 200]
    assert percentile([7.0], 99) == 7.0


def test_rounds_that_do_not_match_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratio("ratio", OURS, Row("p50", "direct", "ms", [0.1]))


def test_the_report_names_command_machine_and_checks() -> None:
    table = Table("Latency", [DIRECT], checks=["all right"], remarks=["loopback"])
    report = Report("python -m tests.benchmarks", "today", {"cpu": "one"}, [table])
    text = report.as_markdown()
    for part in ("`python -m tests.benchmarks`", "- cpu: one", "- Checked: all right"):
        assert part in text
    assert json.loads(report.as_json())["tables"][0]["rows"][0]["values"] == [0.1, 0.3, 0.2]
