"""A named part goes on where an earlier run ended."""

from pathlib import Path

import pytest

from tests.long.parts import PartFailed
from tests.long.parts.__main__ import PARTS
from tests.long.parts.suite import run_suite

TWO_TESTS = """
import os

def test_that_passes() -> None:
    pass

def test_that_is_mended_later() -> None:
    assert os.environ.get("MENDED")
"""


@pytest.mark.full
def test_what_passed_is_left_out_by_the_next_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tests = [str(tmp_path / "test_two.py")]
    Path(tests[0]).write_text(TWO_TESTS)
    with pytest.raises(PartFailed, match="run it again"):
        run_suite(tmp_path, tests, {})
    assert "1 failed, 1 passed" in capfd.readouterr().out
    run_suite(tmp_path, tests, {"MENDED": "1"})
    said = capfd.readouterr().out
    assert "1 tests passed before" in said
    assert "1 passed in" in said
    run_suite(tmp_path, tests, {})
    assert "2 tests passed before" in capfd.readouterr().out


def test_each_part_says_what_it_is() -> None:
    assert all(name == part.name and part.summary for name, part in PARTS.items())
