"""The fleet with real vLLM on the CPU and the demo model: about a minute and a half."""

import os
import signal
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import msgspec
import psutil
import pytest

from serving.contract.prompt import BYTE_TOKENS
from serving.contract.records import DeploymentRecord
from serving.engine.chat_template import VARYING_TOKENS
from tests.fixtures.fleet_process import FleetProcess, running_fleet
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.vllm]

WEIGHTS = Path(__file__).parents[3] / "infra" / "demo_model" / "weights" / "bf16"
DEPLOYMENT = DeploymentRecord(
    deployment_id="dep_demo",
    variant_id="var_demo",
    fleet_id="default",
    engine="vllm",
    weights=str(WEIGHTS),
    replicas_min=1,
    replicas_max=1,
    slots=8,
)
LOAD_SECONDS = 240
PATIENT = {
    "PENSTOCK_FLEET_POLL_SECONDS": "1",
    "PENSTOCK_FLEET_ANSWER_SECONDS": "2",
    "PENSTOCK_FLEET_STUCK_SECONDS": "10",
    "PENSTOCK_FLEET_IDLE_PROBE_SECONDS": "12",
}
"""As in production."""


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


def core_of(leader: int) -> int:
    [core] = [pid for pid, command in group_of(leader).items() if "EngineCore" in command]
    return core


def assert_only_the_node_is_reached(process: FleetProcess, replica_id: str) -> None:
    """No other process of the group listens beyond loopback, nor on the node's port."""
    report = process.report(replica_id)
    for pid in group_of(report.node_pid):
        for line in psutil.Process(pid).net_connections("inet"):
            if line.status == psutil.CONN_LISTEN and pid != report.node_pid:
                assert ip_address(line.laddr.ip).is_loopback, (pid, line.laddr)


async def is_over(process: FleetProcess, replica_id: str, leader: int) -> bool:
    states = {one.replica_id: one.state for one in await process.replicas()}
    return states[replica_id] == "failed" and not group_of(leader)


async def test_a_dead_or_frozen_core_is_replaced_and_leaves_no_orphan(tmp_path: Path) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        control.deploy(DEPLOYMENT)
        for number, seconds in ((signal.SIGKILL, 100), (signal.SIGSTOP, 300)):
            [replica] = await process.ready(seconds=LOAD_SECONDS)
            assert replica.probe_output_tokens >= 1
            assert replica.text_guard is not None
            assert replica.text_guard.takes_mark
            assert "<|end|>" in replica.text_guard.tokens
            # Its template adds less to a chat than the chat's JSON has bytes.
            assert replica.template_tokens == VARYING_TOKENS
            assert BYTE_TOKENS in replica.capabilities
            assert replica.kv_capacity_tokens is not None
            assert replica.kv_capacity_tokens > 100_000, "1 GiB of them"
            leader = process.leader(replica.replica_id)
            assert_only_the_node_is_reached(process, replica.replica_id)
            os.kill(core_of(leader), number)
            await eventually(partial(is_over, process, replica.replica_id, leader), seconds=seconds)
        assert await process.metric("penstock_fleet_ejections_total") == 1
        stored = process.stored().replicas
        last = [one.handle["leader"]["pid"] for one in stored if one.handle is not None]
        assert await process.end() == 0
        assert [group_of(leader) for leader in last] == [{} for _ in last]


async def test_workers_of_a_parallel_engine_listen_on_loopback_alone(tmp_path: Path) -> None:
    parallel = msgspec.structs.replace(DEPLOYMENT, engine_arguments=("--tensor-parallel-size", "2"))
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        control.deploy(parallel)
        [replica] = await process.ready(seconds=2 * LOAD_SECONDS)
        commands = group_of(process.leader(replica.replica_id)).values()
        assert sum("Worker_TP" in command for command in commands) == 2
        assert_only_the_node_is_reached(process, replica.replica_id)
