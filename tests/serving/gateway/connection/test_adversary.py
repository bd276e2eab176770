"""The adversary's table: what one tenant can do to what tenants share, and which test forbids it.

A row of adversary.toml is a `[[queue]]` with `name`, `attack`, `neighbour` (what the other tenants
must still get), `limits` (constants of the code and their values) and `tests`. A row with `holds =
false` has `measured` instead, today's number.
"""

import tomllib
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.named_tests import missing_tests

QUEUES: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("adversary.toml").read_text()
)["queue"]


def value_of(place: str) -> Any:
    """Return what stands at a place in the code: `package.module:NAME`."""
    module, _, name = place.partition(":")
    return attrgetter(name)(import_module(module))


@pytest.mark.parametrize("queue", QUEUES, ids=lambda row: row["name"])
def test_a_row_says_what_holds_or_by_how_much_it_does_not(queue: dict[str, Any]) -> None:
    if queue.get("holds", True):
        assert set(queue) == {"name", "attack", "neighbour", "limits", "tests"}
        assert queue["tests"]
        assert missing_tests(queue["tests"]) == []
    else:
        assert set(queue) == {"name", "attack", "neighbour", "limits", "holds", "measured"}
        assert any(letter.isdigit() for letter in queue["measured"])


@pytest.mark.parametrize("queue", QUEUES, ids=lambda row: row["name"])
def test_the_limits_of_a_row_are_those_of_the_code(queue: dict[str, Any]) -> None:
    assert {place: value_of(place) for place in queue["limits"]} == queue["limits"]


def test_no_two_rows_have_the_same_name() -> None:
    names = [queue["name"] for queue in QUEUES]
    assert len(set(names)) == len(names)
