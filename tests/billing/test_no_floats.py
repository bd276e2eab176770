"""Money is never a float: no float literal, no float(), no true division in billing's code."""

import ast
from pathlib import Path

import pytest

import billing
from tests.simulation import oracle

pytestmark = pytest.mark.unit
ROOT = Path(billing.__file__).parent
DURATIONS = {
    ROOT / "following" / "latency.py",
    ROOT / "following" / "pace.py",
    ROOT / "following" / "selectors.py",
}
"""Seconds are the one thing that floats are for."""
ORACLE = Path(oracle.__file__)
"""It counts the same money by arithmetic of its own."""
FILES = sorted({ORACLE, *ROOT.rglob("*.py")} - DURATIONS)


def floats(tree):
    """Return the lines of a module that could make a float."""
    for node in ast.walk(tree):
        is_literal = isinstance(node, ast.Constant) and isinstance(node.value, float)
        is_division = (
            isinstance(node, ast.BinOp | ast.AugAssign)
            and isinstance(node.op, ast.Div)
            and not is_path(node)
        )
        is_call = isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"float", "round"}
        if is_literal or is_division or is_call:
            yield node.lineno


def is_path(node):
    """Tell whether a division joins a path: its right side is a text, or a path by its name."""
    right = node.value if isinstance(node, ast.AugAssign) else node.right
    is_text = isinstance(right, ast.Constant) and isinstance(right.value, str)
    names = getattr(right, "attr", getattr(right, "id", ""))
    return is_text or isinstance(right, ast.JoinedStr) or names.endswith(("path", "name"))


def test_no_module_makes_a_float():
    found = {str(path): [*floats(ast.parse(path.read_text()))] for path in FILES}
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert len(found) > 100


@pytest.mark.parametrize("line", ["0.5", "a / b", "a /= b", "float(a)", "round(a)"])
def test_the_rule_sees(line):
    assert list(floats(ast.parse(line))) == [1]
