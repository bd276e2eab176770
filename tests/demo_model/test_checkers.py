import pytest

from infra.demo_model.evaluate import is_right

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("kind", "value", "answer", "right"),
    [
        ("number", 85, "47 + 38 = 85", True),
        ("number", 85, "85", True),
        ("number", 85, "The answer is 85.", True),
        ("number", 85, "47 + 38 = 86", False),
        ("number", 85, "85 or 86", False),
        ("number", 85, "none", False),
        ("number", 5, "9 - 4 = 5", True),
        ("number", 5, "-5", False),
        ("sequence", ["2", "5", "7"], "Sorted: 2, 5, 7", True),
        ("sequence", ["2", "5", "7"], "2, 5, 7.", True),
        ("sequence", ["2", "5", "7"], "Sorted: 5, 2, 7", False),
        ("sequence", ["2", "5", "7"], "Sorted: 2, 5", False),
        ("sequence", ["2", "5", "7"], "Sorted: 2, 5, 7, 7", False),
        ("yes_no", "yes", "From the context: the hat is red, so yes.", True),
        ("yes_no", "yes", "Yes", True),
        ("yes_no", "yes", "no", False),
        ("yes_no", "yes", "no, or yes", False),
        ("yes_no", "no", "I know nothing", False),
        ("json", {"name": "Anna", "age": 3}, '{"age": 3, "name": "Anna"}', True),
        ("json", {"name": "Anna", "age": 3}, '{"age": "3", "name": "Anna"}', False),
        ("json", {"name": "Anna"}, '{"name": "Anna"', False),
        ("phrases", ["make up"], "Run `make up`.", True),
        ("phrases", ["input", "output"], "only input", False),
    ],
)
def test_checker(kind, value, answer, right) -> None:
    assert is_right({"kind": kind, "value": value}, answer) is right
