"""`make mutants`: draw mutants by lot, run the simulator against each, print the table.

python -m tests.mutants [--count 30] [--draw 1] [--seeds 60]
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from infra.local.config import ROOT
from infra.local.home import Home
from infra.local.simulate import running
from tests.mutants.candidates import Mutant, candidates

PARTS = ("billing", "serving", "platform", "infra", "web")
PATIENCE_SECONDS = 400
"""A mutant that hangs for longer is caught."""


def main() -> None:
    """Print a line per mutant, and how many were caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--places", type=int, nargs="*", help="Of the lot, these alone.")
    parser.add_argument("--draw", type=int, default=1, help="The seed of the lot.")
    parser.add_argument("--seeds", type=int, default=60, help="Of the simulator, at most.")
    options = parser.parse_args()
    found = candidates(ROOT)
    lot = random.Random(options.draw).sample(found, len(found))
    print(f"{len(found)} candidates; {options.count} drawn by lot {options.draw}", flush=True)
    survivors, count = [], 0
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-") as folder:
        home = Home(Path(folder))
        home.path.chmod(0o711)
        with running(home) as url:
            for place, mutant in enumerate(lot, 1):
                if count == options.count:
                    break
                if options.places and place not in options.places:
                    continue
                verdict = judge(mutant, url, options.seeds)
                if verdict is None:
                    print(f"| - | {mutant} | does not load: drawn again |", flush=True)
                    continue
                count += 1
                print(f"| {place} | {mutant} | {verdict} |", flush=True)
                survivors += [mutant] if verdict == SURVIVED else []
    print(f"{count - len(survivors)} of {count} caught")


SURVIVED = "survived"


def judge(mutant: Mutant, url: str, seeds: int) -> str | None:
    """Return what the simulator says of a mutant; None where the code does not even load."""
    with tempfile.TemporaryDirectory(prefix="penstock-mutant-") as folder:
        root = Path(folder)
        for part in PARTS:
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
        target = root / mutant.path
        target.write_text(mutant.applied(target.read_text()))
        command = [
            *(sys.executable, "-m", "infra.local.cli", "simulate-books", "--server", url),
            *("--seeds", str(seeds), "--no-shrink"),
        ]
        environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'platform'}"}
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, env=environment, cwd=root, capture_output=True, text=True, check=False,
                timeout=PATIENCE_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "caught: hangs"
        return _verdict(done, time.monotonic() - began)


def _verdict(done: subprocess.CompletedProcess[str], seconds: float) -> str | None:
    if done.returncode == 0:
        return SURVIVED
    said = [line for line in done.stderr.splitlines() if "fails: " in line]
    if not said:
        return None
    seed, _, sentence = said[-1].removeprefix("CommandError: ").partition(" fails: ")
    return f"{seed}: {' '.join(sentence.split())[:90]} ({seconds:.0f} s)"


if __name__ == "__main__":
    main()
