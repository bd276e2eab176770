"""The gateway's connection and h11 read the same requests, bodies and ends of connections from the
bytes of traces.toml, wherever these are cut, except where h11_differences.toml says why not."""

import random
from collections.abc import Iterator

import pytest

from tests.fixtures.conversations import (
    DIFFERENCES,
    differences,
    read_by_gateway,
    read_by_h11,
)
from tests.serving.gateway.connection.test_traces import TABLE, wire

TEXTS = TABLE["text"] | {"key": "sk-key"}
CUTS_MAX = 24
"""Of one conversation; of short ones every place is tried."""


def conversations() -> Iterator[tuple[str, list[bytes]]]:
    """Yield the bytes of each row, step by step, and of each framing in a request."""
    for row in TABLE["trace"]:
        steps = [wire(step.get("send", ""), TEXTS) for step in row.get("step", [row])]
        yield row["name"], [data for data in steps if data]
    for framing in TABLE["framing"]:
        for request in TABLE["framed_request"]:
            yield framing["name"], [wire(request["send"], TEXTS | framing)]


CONVERSATIONS = [each for each in conversations() if each[1]]


def cuts(steps: list[bytes]) -> Iterator[list[list[bytes]]]:
    """Yield the steps whole, and each of them cut in two at some places."""
    yield [[data] for data in steps]
    for number, data in enumerate(steps):
        places = range(1, len(data))
        if len(places) > CUTS_MAX:
            places = random.Random(len(data)).sample(places, CUTS_MAX)
        for place in places:
            pieces = [[each] for each in steps]
            pieces[number] = [data[:place], data[place:]]
            yield pieces


@pytest.mark.parametrize(
    ("name", "steps"), CONVERSATIONS, ids=lambda part: part if isinstance(part, str) else ""
)
async def test_the_same_is_read(name: str, steps: list[bytes]) -> None:
    other = read_by_h11(steps)
    expected = {kind for kind, rows in DIFFERENCES.items() for row in rows if name in row["rows"]}
    for pieces in cuts(steps):
        found = differences(await read_by_gateway(pieces), other)
        assert found.keys() == expected, (pieces, found)


def test_every_row_that_differs_exists() -> None:
    named = {name for rows in DIFFERENCES.values() for row in rows for name in row["rows"]}
    assert named <= {name for name, _ in CONVERSATIONS}
