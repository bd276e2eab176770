"""The fleet as a process lets a simulated engine sleep, and is asked for it again."""

import asyncio
import itertools
import json
from pathlib import Path

import msgspec
import pytest

from serving.contract.codec import encode
from serving.contract.records import DeploymentTimeouts
from serving.contract.replica import ReplicaRecord
from serving.contract.slot_shares import DemandReport, DeploymentDemand, OrganizationDemand
from tests.fixtures.fleet_process import OF_A_GATEWAY, FleetProcess, running_fleet
from tests.fixtures.waiting import eventually
from tests.serving.fleet.test_reconciler import DEPLOYMENT, PATIENT, chat

pytestmark = pytest.mark.integration

SLEEPS = msgspec.structs.replace(
    DEPLOYMENT, timeouts=DeploymentTimeouts(wake_seconds=20.0), sleep_after_seconds=0.8
)


async def ask(process: FleetProcess, number: int) -> None:
    """Tell the fleet that somebody waits, as gateways do."""
    demand = DeploymentDemand({}, {"default": {"org_a": OrganizationDemand(1, 0, 1)}})
    report = DemandReport("gw_1", number, {"dep_1": demand})
    headers = {"authorization": f"Bearer {OF_A_GATEWAY}"}
    url = f"{process.base}/demand"
    async with process.session.post(url, data=encode(report), headers=headers) as answer:
        assert answer.status == 200


@pytest.mark.full
async def test_work_that_no_gateway_told_of_keeps_it_awake_and_probes_do_not(
    tmp_path: Path,
) -> None:
    timings = PATIENT | {"PENSTOCK_FLEET_IDLE_PROBE_SECONDS": "0.3"}
    async with running_fleet(tmp_path / "fleet", **timings) as (control, process):
        control.deploy(DEPLOYMENT)  # it may sleep once it is at work
        [replica] = await process.ready()
        started = asyncio.Event()
        work = asyncio.create_task(chat(process.session, replica, 120, started))
        await started.wait()
        control.deploy(SLEEPS)
        events = await work
        assert json.loads(events[-2])["choices"][0]["finish_reason"] == "length"

        async def is_gone() -> bool:
            states = sorted(one.state for one in await process.replicas())
            return states == ["asleep", "stopped"]

        await eventually(is_gone)
        assert process.engines() == []
        assert await process.metric("penstock_fleet_probe_tokens_total", kind="output") > 8


@pytest.mark.full
async def test_one_that_is_asked_for_while_it_drains_is_ready_again(tmp_path: Path) -> None:
    timings = PATIENT | {"PENSTOCK_FLEET_DRAIN_GRACE_SECONDS": "2"}
    async with running_fleet(tmp_path / "fleet", **timings) as (control, process):
        control.deploy(SLEEPS)

        async def living() -> list[ReplicaRecord]:
            return [one for one in await process.replicas() if one.state != "stopped"]

        async def is_asleep() -> bool:
            states = {one.state for one in await living()}
            return "asleep" in states and "ready" not in states

        async def is_back() -> list[ReplicaRecord]:
            found = await living()
            return found if [one.state for one in found] == ["ready"] else []

        async with asyncio.timeout(120):
            for number in itertools.count(1):
                [before] = await process.ready()
                engine = process.leader(before.replica_id)
                await eventually(is_asleep)
                await ask(process, number)
                [after] = await eventually(is_back)
                if after.replica_id == before.replica_id:
                    break  # else this machine stood still until the drain was over
        assert process.engines() == [engine]
        await eventually(is_asleep)  # and it may sleep again
