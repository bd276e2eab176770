"""Every metric that the shipped alert rules name is served by a running platform."""

import re

import httpx
import pytest

from infra.local.config import ROOT
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

RULES = ROOT / "infra/prometheus/alerts.yaml"
METRIC = re.compile(r"\bpenstock_[a-z_]+")
TYPE = re.compile(r"^# TYPE (\S+)", re.MULTILINE)


def test_each_metric_of_the_alert_rules_is_served(simulated_stack: Stack) -> None:
    stack = simulated_stack
    for check in (("billing", "check-integrity"), ("audit", "verify")):
        assert stack.penstock(*check).returncode == 0  # their metrics appear with the first run
    ports = stack.config.ports
    served: set[str] = set()
    for port in (ports.gateway_operators[0], ports.fleet, ports.control_internal):
        page = httpx.get(
            f"http://127.0.0.1:{port}/metrics",
            headers={"authorization": f"Bearer {stack.credential}"},
        )
        served |= set(TYPE.findall(page.raise_for_status().text))
    named = {name.removesuffix("_bucket") for name in METRIC.findall(RULES.read_text())}
    assert named <= served, named - served
