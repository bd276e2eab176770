"""A plugin of pytest that leaves out the tests which have passed, and notes each that passes."""

import os
from pathlib import Path

import pytest

from tests.long.parts.suite import FOLDER_VARIABLE, PASSED, SKIPPED

FOLDER = Path(os.environ[FOLDER_VARIABLE])
_failed: set[str] = set()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has passed, in all workers alike: the list stays as it was at the start."""
    named = (FOLDER / SKIPPED).read_text().splitlines()
    # pytest-xdist adds "@group" to some names, before or after this.
    passed = {*named, *(name.rpartition("@")[0] for name in named)}
    left_out = [item for item in items if item.nodeid in passed]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item.nodeid not in passed]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test when its last phase has passed, in the process that hears of all of them."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    if report.failed:
        _failed.add(report.nodeid)
    elif report.when == "teardown" and report.nodeid not in _failed:
        with (FOLDER / PASSED).open("a") as file:
            file.write(f"{report.nodeid}\n")
