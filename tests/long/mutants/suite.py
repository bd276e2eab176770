"""Forty mutants of gateway, control plane and console: does the test suite notice them?

python -m tests.long.mutants.suite                          print the forty
python -m tests.long.mutants.suite --coverage FILE          run the tests that reach each
python -m tests.long.mutants.suite --draw                   draw them anew

forty.json holds the lot, each a change of one line within a function. FILE is what coverage.py
wrote of a run with `--cov-context=test`: it names the tests that reach a line. Only those
run: a test that never comes to a line cannot notice that it has changed. The clone that they run in
is of HEAD.
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
FILES_RATHER_THAN_TESTS = 400
"""So many ids of tests are passed one by one; of more, their files."""
FOLDERS = {
    "serving/gateway": "tests/serving/gateway",
    "platform/control": "tests/control",
    "web/console": "tests/web",
}
"""Which tests run where coverage names none: it does not see worker processes and imports."""


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
    parser.add_argument("--coverage", type=Path, help="What a run with contexts has written.")
    parser.add_argument("--numbers", type=int, nargs="*", help="Of the forty, these alone.")
    parser.add_argument("--select", default="", help="The marker expression passed to pytest.")
    options = parser.parse_args()
    if options.draw:
        LOT.write_text(json.dumps([asdict(one) for one in draw()], indent=1) + "\n")
    caught = 0
    for number, row in enumerate(json.loads(LOT.read_text()), 1):
        if options.numbers and number not in options.numbers:
            continue
        change, verdict = Change(**row), ""
        if options.coverage:
            verdict = judge(change, tests_of(change, options.coverage), options.select)
            caught += not verdict.startswith(SURVIVED)
        old, new = change.before.strip(), change.after.strip()
        print(
            f"| {number} | {change.path} {change.function} | {old} → {new} | {verdict} |",
            flush=True,
        )
    if options.coverage:
        print(f"{caught} caught")


SURVIVED = "survived"


def draw() -> list[Change]:
    """Return forty by lot, in the order of the files."""
    lot = random.Random(SEED)
    drawn: list[Mutant] = []
    for part, share in SHARES.items():
        able = [one for one in candidates(ROOT, part) if _is_one_line_of_a_function(one)]
        drawn += sorted(lot.sample(able, share), key=lambda one: (one.path, one.start))
    return [_change(one) for one in drawn]


def tests_of(change: Change, coverage: Path) -> list[str]:
    """Return the ids of the tests that reach the line."""
    from coverage import CoverageData

    data = CoverageData(str(coverage))
    data.read()
    path = next(name for name in data.measured_files() if name.endswith("/" + change.path))
    line = change.at(Path(path).read_text().split("\n")) + 1
    contexts = data.contexts_by_lineno(path).get(line, [])
    ids = (name.rpartition("|")[0] for name in contexts if "|" in name)
    return sorted({re.sub(r"@\w+$", "", each) for each in ids})  # a group of pytest-xdist


def judge(change: Change, tests: list[str], select: str) -> str:
    """Return the first test that fails with the change in place."""
    with tempfile.TemporaryDirectory(prefix="penstock-mutant-") as folder:
        root = Path(folder) / "penstock"
        subprocess.run(["git", "clone", "-q", ROOT, root], check=True)
        target = root / change.path
        lines = target.read_text().split("\n")
        lines[change.at(lines)] = change.after
        target.write_text("\n".join(lines))
        named = tests if len(tests) <= FILES_RATHER_THAN_TESTS else _files(tests)
        named = named or [each for part, each in FOLDERS.items() if change.path.startswith(part)]
        (root / "tests.txt").write_text("\n".join(named))
        command = [sys.executable, "-m", "pytest", "-n2", "-x", "-q", "-p", "no:cacheprovider"]
        selected = ["-m", select] if select else []
        try:
            run = subprocess.run(
                [*command, *selected, "@tests.txt"],
                cwd=root,
                env={**os.environ, "PYTHONPATH": f"{root}:{root / 'platform'}"},
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "hangs"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.M)
    return failed[1] if failed else f"{SURVIVED}, exit {run.returncode}"


def _files(tests: list[str]) -> list[str]:
    return sorted({test.partition("::")[0] for test in tests})


def _change(mutant: Mutant) -> Change:
    text = (ROOT / mutant.path).read_text()
    line = text[: mutant.start].count("\n") + 1
    before, after = (each.split("\n")[line - 1] for each in (text, mutant.applied(text)))
    return Change(mutant.path, mutant.where, line, before, after)


def _is_one_line_of_a_function(mutant: Mutant) -> bool:
    return bool(mutant.where) and not mutant.where.isupper() and "\n" not in mutant.old


if __name__ == "__main__":
    main()
