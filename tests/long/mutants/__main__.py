"""`make mutants`: draw mutants by lot, run the simulator against each, print the table.

python -m tests.long.mutants [--rooms books] [--count 30] [--draw 1] [--seeds 60]
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from infra.local.config import ROOT
from infra.local.state_dir import StateDirectory
from tests.long.mutants.candidates import ROOMS, Mutant, candidates
from tests.simulation.server import SERVER_VARIABLE, running

PARTS = ("billing", "serving", "platform", "infra", "web", "tests/simulation")
FURTHER: dict[str, tuple[str, ...]] = {"books": (), "payments": ("--paying",)}
"""What else the simulator is told, by what is broken."""
TEMPLATE = "penstock_simulation_prepared"
"""A prepared database, copied for mutants of Python; one of SQL is prepared anew."""
PATIENCE_SECONDS = 600
"""A mutant that says nothing of its seeds for longer hangs, and is caught."""


def main() -> None:
    """Print a line per mutant, and how many were caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.long.mutants")
    parser.add_argument("--rooms", choices=ROOMS, default="books", help="What is broken.")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--places", type=int, nargs="*", help="Of the lot, these alone.")
    parser.add_argument("--draw", type=int, default=1, help="The seed of the lot.")
    parser.add_argument("--seeds", type=int, default=60, help="Of the simulator, at most.")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    found = candidates(ROOT, options.rooms)
    lot = random.Random(options.draw).sample(found, len(found))
    print(
        f"{len(found)} candidates of {options.rooms}; {options.count} drawn by lot {options.draw}",
        flush=True,
    )
    survivors, count = [], 0
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-") as folder:
        home = StateDirectory(Path(folder))
        home.path.chmod(0o711)
        with running(home) as url:
            further = FURTHER[options.rooms]
            if simulate(ROOT, url, *further, seeds=1).code != 0:
                sys.exit("the books as they are fail")
            for place, mutant in enumerate(lot, 1):
                if count == options.count:
                    break
                if options.places and place not in options.places:
                    continue
                verdict = judge(mutant, url, *further, seeds=options.seeds)
                if verdict is None:
                    print(f"| - | {mutant} | does not load: drawn again |", flush=True)
                    continue
                count += 1
                print(f"| {place} | {mutant} | {verdict} |", flush=True)
                survivors += [mutant] if verdict == SURVIVED else []
    print(f"{count - len(survivors)} of {count} caught")


SURVIVED = "survived"


def judge(mutant: Mutant, url: str, *further: str, seeds: int) -> str | None:
    """Return what the simulator says of a mutant; None where the code does not even load."""
    with tempfile.TemporaryDirectory(prefix="penstock-mutant-") as folder:
        root = Path(folder)
        for part in PARTS:
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
        target = root / mutant.path
        target.write_text(mutant.applied(target.read_text()))
        is_sql = target.suffix == ".sql"
        began = time.monotonic()
        run = simulate(root, url, *further, seeds=seeds, template=None if is_sql else TEMPLATE)
        return _verdict(run, time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class Run:
    """How a run of the simulator ended, None where it hangs, and what it said of it."""

    code: int | None
    said: str


def simulate(
    root: Path, url: str, *further: str, seeds: int, template: str | None = TEMPLATE
) -> Run:
    """Run seeds against the code in a folder, as long as it goes on telling how far it is."""
    command = [
        *(sys.executable, "-m", "tests.simulation"),
        *("--seeds", str(seeds), "--no-shrink", *further),
        *(("--template", template) if template else ()),
    ]
    path = f"{root}:{root / 'platform'}"
    environment = {**os.environ, "PYTHONPATH": path, SERVER_VARIABLE: url}
    with tempfile.NamedTemporaryFile("r") as said:
        with Path(said.name).open("w") as out:
            process = subprocess.Popen(
                command, env=environment, cwd=root, stdout=subprocess.DEVNULL, stderr=out
            )
        if _hangs(process, Path(said.name)):
            process.terminate()
            process.wait()
            return Run(None, said.read())
        return Run(process.returncode, said.read())


def _hangs(process: subprocess.Popen[bytes], said: Path) -> bool:
    """Wait for the simulator's end, as long as it goes on telling how far it is."""
    size, since = 0, time.monotonic()
    while process.poll() is None:
        if said.stat().st_size != size:
            size, since = said.stat().st_size, time.monotonic()
        if time.monotonic() - since > PATIENCE_SECONDS:
            return True
        time.sleep(0.1)
    return False


def _verdict(run: Run, seconds: float) -> str | None:
    if run.code is None:
        return "caught: hangs"
    if run.code == 0:
        return SURVIVED
    last = [line for line in run.said.splitlines() if "fails: " in line]
    if not last:
        return None
    seed, _, sentence = last[-1].partition(" fails: ")
    return f"{seed}: {' '.join(sentence.split())[:90]} ({seconds:.0f} s)"


if __name__ == "__main__":
    main()
