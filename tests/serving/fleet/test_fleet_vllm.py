"""The fleet with real vLLM on the CPU and the demo model: about a minute and a half."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from serving.contract.records import DeploymentRecord
from tests.support.fleet_process import FleetProcess, running_fleet, until

pytestmark = [pytest.mark.integration, pytest.mark.faults]

WEIGHTS = Path(__file__).parents[3] / "infra" / "demo_model" / "weights" / "bf16"
DEPLOYMENT = DeploymentRecord(
    deployment_id="dep_demo",
    variant_id="var_demo",
    engine="vllm",
    weights=str(WEIGHTS),
    replicas_min=1,
    replicas_max=1,
    slots=8,
)
LOAD_SECONDS = 240
PATIENT = {"PENSTOCK_FLEET_STUCK_SECONDS": "10", "PENSTOCK_FLEET_ANSWER_SECONDS": "2"}


def group_of(leader: int) -> dict[int, str]:
    """The living processes of an engine's group, by their command."""
    found = {}
    for process in psutil.process_iter(["cmdline", "status"]):
        try:
            if os.getpgid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.info["cmdline"] or ())
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


async def is_over(process: FleetProcess, leader: int) -> bool:
    states = [one.state for one in await process.replicas()]
    return "failed" in states and not group_of(leader)


async def test_vllm_serves_a_killed_core_is_replaced_and_no_orphan_is_left(tmp_path: Path) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        control.deploy(DEPLOYMENT)
        [first] = await process.ready(seconds=LOAD_SECONDS)
        assert first.probe_output_tokens >= 1
        leader = process.leader(first.replica_id)
        [core] = [pid for pid, command in group_of(leader).items() if "EngineCore" in command]
        os.kill(core, signal.SIGKILL)
        await until(lambda: is_over(process, leader), 20)
        [second] = await process.ready(seconds=LOAD_SECONDS)
        assert second.replica_id != first.replica_id
        last = process.leader(second.replica_id)
        assert await process.end() == 0
        assert group_of(last) == {}
