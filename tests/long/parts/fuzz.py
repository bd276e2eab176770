"""`fuzz`: each fuzz target for a minute, with atheris installed in the part's own folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

from infra.local.config import ROOT
from tests.long.fuzz.targets import TARGETS
from tests.long.parts import Part, PartFailed

ATHERIS = "atheris~=3.0"
TARGET_SECONDS = 60
EXECUTED = re.compile(r"stat::number_of_executed_units: *(\d+)")
LINES_SHOWN = 20


def run(folder: Path) -> None:
    """Fuzz all targets, one after another. Raises PartFailed."""
    environment = _environment(folder)
    failed = [name for name in TARGETS if not fuzz(name, folder, environment, TARGET_SECONDS)]
    if failed:
        raise PartFailed(f"{', '.join(failed)}: the inputs and logs are in {folder}")


def fuzz(target: str, folder: Path, environment: dict[str, str], seconds: int) -> bool:
    """Fuzz one target, and return whether nothing broke. What broke it is left in the folder."""
    log = folder / f"{target}.log"
    options = (f"-max_total_time={seconds}", f"-artifact_prefix={folder}/{target}-")
    command = (sys.executable, "-m", "tests.long.fuzz", target, "-print_final_stats=1", *options)
    with log.open("wb") as file:
        status = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=file, stderr=file, check=False
        ).returncode
    text = log.read_text(errors="replace")
    executed = EXECUTED.search(text)
    if status or executed is None:
        print(f"{target}: broken", *text.splitlines()[-LINES_SHOWN:], sep="\n", flush=True)
        return False
    print(f"{target}: {int(executed[1]):,} inputs in {seconds} s", flush=True)
    return True


def _environment(folder: Path) -> dict[str, str]:
    """Install atheris where it is not yet; return an environment that has it. Raises PartFailed."""
    packages = folder / "packages"
    if not (packages / "atheris").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages)]
        installed = subprocess.run([*command, ATHERIS], capture_output=True, text=True, check=False)
        if installed.returncode:
            raise PartFailed(f"pip can't install {ATHERIS}: {installed.stderr.strip()}")
    path = (str(ROOT), str(ROOT / "platform"), str(packages), os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


FUZZ = Part("fuzz", f"{len(TARGETS)} fuzz targets, {TARGET_SECONDS} s each", run)
