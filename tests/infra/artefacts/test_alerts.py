"""The shipped alert rules: each has its advice on the page, and fires when it should."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from infra.local.config import ROOT
from tests.fixtures.programs import program

RULES = ROOT / "infra/prometheus/alerts.yaml"
PAGE = ROOT / "docs/operate/monitor.md"
CASES = Path(__file__).with_name("alert_cases.yaml")
ROW = re.compile(r"^\| `([A-Z][A-Za-z]+)` \|", re.MULTILINE)


@pytest.mark.unit
def test_each_alert_has_its_row_on_the_page_and_no_other() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = sorted(rule["alert"] for group in groups for rule in group["rules"])
    assert sorted(ROW.findall(PAGE.read_text())) == alerts


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [("check", "rules", str(RULES)), ("test", "rules", str(CASES))],
    ids=lambda each: each[0],
)
def test_prometheus_takes_the_rules_and_fires_them(command: tuple[str, ...]) -> None:
    promtool = program("promtool", package="prometheus")
    ran = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
