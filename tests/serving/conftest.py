"""What all tests of the data plane share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.memory_folder import memory_folder


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """pytest's own, in memory: gateways sync their journals at every step."""
    with memory_folder(tmp_path) as folder:
        yield folder
