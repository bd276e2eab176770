"""Forty mutants of gateway, control plane and console: does the test suite notice them?

python -m tests.long.mutants.suite                  print the forty
python -m tests.long.mutants.suite --run            run the tests of each mutant's package
python -m tests.long.mutants.suite --draw           draw them anew

forty.json holds the lot, each a change of one line within a function. The tests of its package run
until one fails, those first that name the module or the function; they run in a clone of HEAD.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.local.config import ROOT
from tests.long.mutants.candidates import Mutant, candidates

LOT = Path(__file__).with_name("forty.json")
SEED = 23
SHARES = {"gateway": 14, "control": 13, "console": 13}
PATIENCE_SECONDS = 1_800
FOLDERS = {
    "serving/gateway": "tests/serving/gateway",
    "platform/control": "tests/control",
    "web/console": "tests/web",
}
"""Where a package's tests are."""
TIER = "not full and not long"
"""The tests of `make test`."""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a file, as it is and as the mutant has it."""

    path: str
    function: str
    line: int
    before: str
    after: str

    def at(self, lines: list[str]) -> int:
        """Return the index of the line, which may have moved: the nearest that reads the same."""
        same = [index for index, text in enumerate(lines) if text == self.before]
        return min(same, key=lambda index: abs(index + 1 - self.line))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.long.mutants.suite")
    parser.add_argument("--draw", action="store_true", help="Draw the forty anew.")
    parser.add_argument("--run", action="store_true", help="Run tests against each.")
    parser.add_argument("--numbers", type=int, nargs="*", help="Of the forty, these alone.")
    parser.add_argument("--select", default=TIER, help="The marker expression passed to pytest.")
    options = parser.parse_args()
    if options.draw:
        LOT.write_text(json.dumps([asdict(one) for one in draw()], indent=1) + "\n")
    caught = 0
    for number, row in enumerate(json.loads(LOT.read_text()), 1):
        if options.numbers and number not in options.numbers:
            continue
        change, verdict = Change(**row), ""
        if options.run:
            verdict = judge(change, options.select)
            caught += not verdict.startswith(SURVIVED)
        old, new = change.before.strip(), change.after.strip()
        print(
            f"| {number} | {change.path} {change.function} | {old} → {new} | {verdict} |",
            flush=True,
        )
    if options.run:
        print(f"{caught} caught")


SURVIVED = "survived"
HANGS = "hangs"


def draw() -> list[Change]:
    """Return forty by lot, in the order of the files."""
    lot = random.Random(SEED)
    drawn: list[Mutant] = []
    for part, share in SHARES.items():
        able = [one for one in candidates(ROOT, part) if _is_one_line_of_a_function(one)]
        drawn += sorted(lot.sample(able, share), key=lambda one: (one.path, one.start))
    return [_change(one) for one in drawn]


def tests_of(change: Change) -> list[str]:
    """Return the test files of the change's package, those first that are named like its module
    and name its function most often."""
    (folder,) = (each for part, each in FOLDERS.items() if change.path.startswith(part))
    module, function = Path(change.path).stem, change.function.rpartition(".")[2].lstrip("_")

    def relevance(path: Path) -> tuple[bool, int]:
        text = path.read_text()
        return module in path.stem, text.count(module) + text.count(function)

    ordered = sorted((ROOT / folder).rglob("test_*.py"), key=relevance, reverse=True)
    return [str(path.relative_to(ROOT)) for path in ordered]


def judge(change: Change, select: str) -> str:
    """Return the first test that fails with the change in place and passes without it."""
    with tempfile.TemporaryDirectory(prefix="penstock-mutant-") as folder:
        root = Path(folder) / "penstock"
        subprocess.run(["git", "clone", "-q", ROOT, root], check=True)
        (root / ".venv").symlink_to(ROOT / ".venv")  # some tests run its programs
        target = root / change.path
        original = target.read_text()
        lines = original.split("\n")
        lines[change.at(lines)] = change.after
        (root / "tests.txt").write_text("\n".join(tests_of(change)))
        innocent: list[str] = []
        while True:
            target.write_text("\n".join(lines))
            deselected = [f"--deselect={name}" for name in innocent]
            failed = _first_failure(root, "-n2", "-m", select, *deselected, "@tests.txt")
            target.write_text(original)
            if failed == HANGS or failed.startswith(SURVIVED):
                return failed
            if _first_failure(root, failed) != failed:
                return failed
            innocent.append(failed)


def _first_failure(root: Path, *arguments: str) -> str:
    """Run tests in a clone until one fails; return its name, or what else came of it."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    try:
        run = subprocess.run(
            command,
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root}:{root / 'platform'}"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return HANGS
    failed = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", run.stdout, re.M)
    return failed[1] if failed else f"{SURVIVED}, exit {run.returncode}"


def _change(mutant: Mutant) -> Change:
    text = (ROOT / mutant.path).read_text()
    line = text[: mutant.start].count("\n") + 1
    before, after = (each.split("\n")[line - 1] for each in (text, mutant.applied(text)))
    return Change(mutant.path, mutant.where, line, before, after)


def _is_one_line_of_a_function(mutant: Mutant) -> bool:
    return bool(mutant.where) and not mutant.where.isupper() and "\n" not in mutant.old


if __name__ == "__main__":
    main()
