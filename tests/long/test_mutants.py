"""The forty mutants change lines that are there: whoever moves or rewords one takes its mutant
along."""

import json

import pytest

from tests.long.mutants.suite import LOT, ROOT, Change

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("row", json.loads(LOT.read_text()), ids=lambda row: row["path"])
def test_its_line_is_there(row: dict[str, str]) -> None:
    change = Change(**row)  # type: ignore[arg-type]
    assert change.before in (ROOT / change.path).read_text().split("\n")
