"""Tests that share a platform run on one worker, one after another: it starts once a run."""

from pathlib import Path

import pytest

PLATFORMS = ("stack", "simulated_stack", "two_gateways")
"""The fixtures that every test of a run shares; other platforms are their module's own."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group these tests by the platform that they use."""
    for item in items:
        if isinstance(item, pytest.Function) and Path(__file__).parent in item.path.parents:
            used = (name for name in PLATFORMS if name in item.fixturenames)
            item.add_marker(pytest.mark.xdist_group(next(used, item.path.stem)))
