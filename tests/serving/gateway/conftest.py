"""A running gateway for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fixtures.gateway import Stack, running_stack


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """One tenant with credit, one model, one simulated replica."""
    async with running_stack(tmp_path) as running:
        yield running
