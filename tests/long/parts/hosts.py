"""`hosts`: the fleet on two hosts of a real Ray cluster, in an environment of its own with Ray."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from infra.local.config import ROOT
from tests.long.parts import Part, PartFailed

PIN = re.compile(r"^ray==(\S+)$", re.MULTILINE)


def run_hosts(folder: Path) -> None:
    """Make the environment, and run the cases in it. Raises PartFailed."""
    if os.geteuid() != 0:
        raise PartFailed("network namespaces need root: run it as root")
    python = _environment(folder)
    command = (str(python), "-m", "tests.long.parts.ray_cases", str(folder))
    paths = os.pathsep.join((str(ROOT), str(ROOT / "platform")))
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, cwd=ROOT, check=False)
    if done.returncode:
        raise PartFailed("a case failed")


def _environment(folder: Path) -> Path:
    """Return the interpreter of an environment with Ray, beside all that this one has."""
    constraints = ROOT / "infra" / "constraints.txt"
    pin = PIN.search(constraints.read_text())
    if pin is None:
        raise PartFailed(f"{constraints.name} pins no ray")
    place = folder / f"ray-{pin[1]}"
    python = place / "bin" / "python"
    if not (place / "made").exists():
        print(f"  an environment with Ray {pin[1]}", flush=True)
        _run(sys.executable, "-m", "venv", "--clear", str(place))
        _run(str(python), "-m", "pip", "install", "-q", "-c", str(constraints), "ray")
        ours = sysconfig.get_path("purelib")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        (place / "lib" / version / "site-packages" / "ours.pth").write_text(ours + "\n")
        (place / "made").touch()
    return python


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PartFailed(f"{command[0]}: {error}") from error


HOSTS = Part(
    "hosts", "a fleet on two Ray nodes, which are killed and cut off, under load", run_hosts
)
