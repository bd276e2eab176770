import pytest

from infra.demo_model.__main__ import WEIGHTS
from infra.demo_model.evaluate import size_bytes
from infra.demo_model.heldout import held_out_sha256
from infra.demo_model.report import PARENTS, accuracy, problems, read_report, score, wilson

pytestmark = pytest.mark.unit
MAX_WEIGHTS_BYTES = 12_000_000


@pytest.mark.parametrize("variant", PARENTS)
def test_reports_are_valid_and_of_this_held_out_set(variant) -> None:
    report = read_report(WEIGHTS / variant)
    assert problems(report) == []
    assert report["variant"] == variant
    assert report["evaluation_set"]["sha256"] == held_out_sha256()
    assert report["size_bytes"] == size_bytes(WEIGHTS / variant)
    assert report["perplexity"] >= 1.0
    assert report["output_tokens_per_second"] > 0


def test_bf16_answers_nine_in_ten_right() -> None:
    assert read_report(WEIGHTS / "bf16")["accuracy"]["overall"]["share"] >= 0.9


@pytest.mark.parametrize("variant", PARENTS)
def test_weights_are_small(variant) -> None:
    assert 0 < size_bytes(WEIGHTS / variant) <= MAX_WEIGHTS_BYTES


def test_smaller_precision_is_smaller() -> None:
    bf16, int8, int4 = (size_bytes(WEIGHTS / variant) for variant in ("bf16", "int8", "int4"))
    assert bf16 > int8 > int4


@pytest.mark.parametrize(
    ("right", "asked", "low", "high"),
    [
        # Newcombe 1998, table I: 81/263, 15/148, 0/20, 1/29
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval(right, asked, low, high) -> None:
    assert wilson(right, asked) == pytest.approx((low, high), abs=1e-4)


def test_accuracy_counts_by_skill() -> None:
    found = accuracy([("a", True), ("a", False), ("b", True)])
    assert found["overall"] == score(2, 3)
    assert found["by_skill"] == {"a": score(1, 2), "b": score(1, 1)}


def test_problems_names_what_is_wrong() -> None:
    report = read_report(WEIGHTS / "bf16")
    report["accuracy"]["overall"]["right"] -= 1
    assert "the skills do not add up to the overall right" in problems(report)
    assert problems({"schema": 1})[0].startswith("keys differ")
