"""A part of the test suite in a changed environment, which goes on where an earlier run ended.

What passed is kept by the test's name, as long as the sources are the same.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from infra.local.config import ROOT
from tests.long.parts import PartFailed

SOURCES = ("billing", "infra", "platform", "serving", "tests", "web")
QUICK = "not full and not long and not browser and not e2e"
FOLDER_VARIABLE = "PENSTOCK_TEST_PART_FOLDER"
PASSED, SKIPPED, SOURCE_DIGEST = "passed.txt", "skipped.txt", "sources.txt"
PROCESSES = 2
FAILED_MAX = 50
"""With as many failures the reason is one, and no further test tells more."""


def run_suite(
    folder: Path,
    tests: Sequence[str],
    environment: Mapping[str, str],
    *,
    markers: str = QUICK,
    processes: int = PROCESSES,
) -> None:
    """Run the tests that no earlier run has passed; 0 processes are this one's alone. Raises
    PartFailed."""
    before = _earlier(folder)
    (folder / SKIPPED).write_text("".join(f"{name}\n" for name in before))
    if before:
        print(f"{len(before)} tests passed before; --again runs them too.", flush=True)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "tests.long.parts.remember"),
        *("-n", str(processes), "--dist", "loadgroup", "--maxfail", str(FAILED_MAX)),
        *("--tb", "short", "-m", markers, *tests),
    ]
    path = os.pathsep.join((str(ROOT), str(ROOT / "platform"), os.environ.get("PYTHONPATH", "")))
    given = {"PYTHONPATH": path, FOLDER_VARIABLE: str(folder)}
    # A worker of pytest-xdist that runs this must not make the new run look like a worker.
    inherited = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    status = subprocess.run(
        command, cwd=ROOT, env={**inherited, **given, **environment}, check=False
    ).returncode
    is_done = status == pytest.ExitCode.NO_TESTS_COLLECTED and before
    if status != pytest.ExitCode.OK and not is_done:
        raise PartFailed("see above; run it again for those tests alone that have not passed")


def _earlier(folder: Path) -> list[str]:
    """Return the names of the tests that have passed with these sources."""
    digest = hashlib.sha256("\n".join(_sources()).encode()).hexdigest()
    kept, passed = folder / SOURCE_DIGEST, folder / PASSED
    if not kept.exists() or kept.read_text() != digest:
        passed.unlink(missing_ok=True)
        kept.write_text(digest)
    return passed.read_text().splitlines() if passed.exists() else []


def _sources() -> Iterator[str]:
    """Yield each source file with its size and time."""
    for top in SOURCES:
        for path in sorted((ROOT / top).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                stat = path.stat()
                yield f"{path} {stat.st_size} {stat.st_mtime_ns}"
