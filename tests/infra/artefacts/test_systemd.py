"""The shipped units, judged by systemd itself."""

import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from infra.cli import app
from infra.local.config import ROOT
from serving.contract.records import DeploymentTimeouts
from tests.fixtures.programs import program

FOLDER = ROOT / "infra/systemd"
UNITS = sorted(FOLDER.glob("*.service"))
EXPOSURE_MAX = 30
"""Tenths: 3.0 of `systemd-analyze security`, which calls that OK."""


class Unit(ConfigParser):
    """The last value of each key of a unit."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, interpolation=None, delimiters=("=",), comment_prefixes="#")
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.read(path)

    def seconds(self, key: str) -> int:
        """Return a time of the service."""
        return int(self["Service"][key])


def unit(name: str) -> Unit:
    return Unit(FOLDER / f"penstock-{name}.service")


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [program("systemd-analyze", package="systemd"), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={"SYSTEMD_COLORS": "0"}
    )


@pytest.mark.unit
def test_a_unit_runs_each_service_of_the_command() -> None:
    (run,) = (each.typer_instance for each in app.registered_groups if each.name == "run")
    services = {each.name or each.callback.__name__ for each in run.registered_commands}
    services.remove("node")  # which the fleet starts, one for each replica
    assert services == {Unit(path)["Service"]["ExecStart"].split()[2] for path in UNITS}, (
        "a service without a unit"
    )


@pytest.mark.unit
def test_a_stop_waits_for_the_longest_stream_and_for_tasks(settings: object) -> None:
    gateway = unit("gateway@")
    longest = DeploymentTimeouts().total_seconds
    assert gateway.seconds("TimeoutStopSec") >= longest + 60
    worker = unit("worker")
    assert worker.seconds("TimeoutStopSec") > settings.CELERY_TASK_TIME_LIMIT  # type: ignore[attr-defined]


@pytest.mark.unit
def test_engines_outlive_the_fleet_and_its_folder_for_temporary_files() -> None:
    service = unit("fleet")["Service"]
    assert (service["KillMode"], service["OOMPolicy"]) == ("process", "continue")
    assert service["PrivateTmp"] == "no"


@pytest.mark.long
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    """Any word is a failure: systemd prints unknown keys and exits with 0."""
    texts = {path.name: path.read_text() for path in [*UNITS, FOLDER / "penstock.target"]}
    for name, text in texts.items():
        changed = text.replace("/opt/penstock/bin/penstock", "/bin/true")
        (tmp_path / name.replace("@", "@eu-1")).write_text(changed)
    ran = analyze("verify", *sorted(tmp_path.iterdir()))
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


@pytest.mark.long
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_is_hardened(path: Path) -> None:
    ran = analyze("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.long
def test_the_users_of_the_units_are_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    command = [program("systemd-sysusers", package="systemd"), f"--root={tmp_path}"]
    subprocess.run([*command, FOLDER / "penstock-sysusers.conf"], check=True, capture_output=True)
    made = {line.split(":")[0] for line in (tmp_path / "etc/passwd").read_text().splitlines()}
    assert {Unit(path)["Service"]["User"] for path in UNITS} <= made
