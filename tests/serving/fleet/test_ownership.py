"""Lives of one fleet: the newest owns the deployments, and control's absence stops no host."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from serving.contract.codec import decode, encode
from serving.contract.fleet import feed_lineage, generation_of
from serving.fleet.ownership import FleetOwnership, StoredOwnership
from serving.fleet.state_store import FleetStore
from serving.internal_http import InternalHttpClient
from tests.fixtures.fleet_process import (
    CREDENTIAL,
    OF_A_GATEWAY,
    Control,
    FleetProcess,
    running_fleet,
)
from tests.fixtures.waiting import eventually
from tests.serving.fleet.test_reconciler import DEPLOYMENT, PATIENT, changed

KEPT = PATIENT | {"PENSTOCK_FLEET_KEEP_REPLICAS": "1"}


def test_a_lineage_tells_its_generation() -> None:
    assert generation_of(feed_lineage(12, "0190-ab")) == 12
    for other in ("", "g", "g-", "gx-1", "12-ab", "01901234-5678-7abc", "g²-1"):
        assert generation_of(other) == 0


@asynccontextmanager
async def life(folder: Path, control: Control) -> AsyncIterator[FleetOwnership]:
    """The ownership of a process that has locked a folder."""
    store = FleetStore(folder)
    store.open()
    try:
        async with aiohttp.ClientSession() as session:
            client = InternalHttpClient(session, f"{control.url}/internal/v1", CREDENTIAL)
            yield FleetOwnership(store, "eu-1", client, heartbeat_seconds=0.01, jitter=lambda: 0.0)
    finally:
        store.close()


@pytest.fixture
async def control() -> AsyncIterator[Control]:
    started = Control()
    await started.start()
    yield started
    await started.stop()


async def test_each_start_has_a_higher_generation_and_an_older_life_learns_of_it(
    tmp_path: Path, control: Control
) -> None:
    async with life(tmp_path / "a", control) as older:
        await older.acquire()
        async with life(tmp_path / "b", control) as newer:
            await newer.acquire()
            assert (older.generation, newer.generation) == (1, 2)
            await older.keep()
            assert older.is_superseded
            assert not newer.is_superseded
    async with life(tmp_path / "a", control) as again:
        await again.acquire()
        assert again.generation == 3


async def test_while_control_is_away_a_folder_goes_on_with_what_it_was_granted(
    tmp_path: Path, control: Control
) -> None:
    async with life(tmp_path, control) as before:
        await before.acquire()
    await control.stop()
    async with life(tmp_path, control) as after:
        await after.acquire()
        assert (after.generation, after.instance_id) == (1, before.instance_id)
        assert after.failure_count == 1


@pytest.mark.parametrize("why", ["copied", "superseded", "another fleet", "damaged", "new"])
async def test_a_folder_that_was_not_granted_its_generation_waits_for_control(
    tmp_path: Path, control: Control, why: str
) -> None:
    folder = tmp_path / "a"
    async with life(folder, control) as before:
        await before.acquire()
        if why == "superseded":
            async with life(tmp_path / "b", control) as newer:
                await newer.acquire()
            await before.keep()
    path = folder / "ownership.json"
    if why == "copied":
        folder = shutil.copytree(folder, tmp_path / "copy")
    elif why == "another fleet":
        kept = decode(path.read_bytes(), StoredOwnership)
        path.write_bytes(encode(msgspec.structs.replace(kept, fleet_id="us-1")))
    elif why == "damaged":
        path.write_bytes(b"{")
    elif why == "new":
        path.unlink()
    port = int(control.url.rpartition(":")[2])
    await control.stop()
    async with life(folder, control) as waiting:
        acquiring = asyncio.create_task(waiting.acquire())
        await eventually(lambda: waiting.failure_count >= 2)
        assert waiting.generation == 0
        assert waiting.refusal
        await control.start(port)
        await acquiring
        assert waiting.generation == control.generations.newest > 1


async def readiness_of(fleet: FleetProcess, part: str) -> None:
    async def is_so() -> bool:
        return part in (await fleet.readiness())[1]

    await eventually(is_so, f"/readyz says {part}")


def starts(fleet: FleetProcess) -> int:
    """Return how many engines the fleet ever started; few enough that no log was removed."""
    return len(list((fleet.directory / "logs").glob("*.log")))


@pytest.mark.integration
async def test_of_two_lives_on_two_hosts_the_newer_starts_and_the_older_ends_nothing(
    tmp_path: Path,
) -> None:
    second = changed(deployment_id="dep_2")
    async with running_fleet(tmp_path / "a", **PATIENT) as (control, older):
        control.deploy(DEPLOYMENT, second)
        await older.ready(2)
        newer = FleetProcess(control, tmp_path / "b", **PATIENT)
        try:
            await newer.start()
            await newer.ready(2)
            await readiness_of(older, "superseded: a newer process of fleet default")
            assert (starts(older), starts(newer)) == (2, 2)
            assert await older.metric("penstock_fleet_superseded") == 1
            assert await newer.metric("penstock_fleet_generation") == 2

            # The older one neither replaces what fails, nor ends what is not wanted any more,
            os.kill(older.engines()[0], signal.SIGKILL)
            control.deploy(changed(replicas_min=2))
            await eventually(lambda: _started(newer, 3, engines=2))
            assert (starts(older), len(older.engines())) == (2, 1)
            assert (await older.page()).lineage.startswith("g1-")
            assert (await newer.page()).lineage.startswith("g2-")

            # nor its own engines when it ends, though they would end with it else.
            assert await older.end() == 0
            assert len(older.engines()) == 1
            assert (starts(newer), len(newer.engines())) == (3, 2)
        finally:
            await newer.clear_up()


@pytest.mark.integration
async def test_a_life_asks_before_it_starts_anything(tmp_path: Path) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, fleet):
        control.deploy(DEPLOYMENT)
        [replica] = await fleet.ready()
        # It would replace a dead engine sooner than it sends its next heartbeat.
        control.generations.pass_to("elsewhere")
        os.kill(fleet.leader(replica.replica_id), signal.SIGKILL)
        await readiness_of(fleet, "superseded")
        assert await fleet.end() == 0
        assert starts(fleet) == 1


async def _started(fleet: FleetProcess, count: int, *, engines: int) -> bool:
    return (starts(fleet), len(fleet.engines())) == (count, engines)


@pytest.mark.full
@pytest.mark.integration
async def test_a_life_that_went_on_without_control_hears_of_the_newer_one(
    tmp_path: Path,
) -> None:
    async with running_fleet(tmp_path / "fleet", **KEPT) as (control, fleet):
        control.deploy(DEPLOYMENT)
        [replica] = await fleet.ready()
        await fleet.end()
        port = int(control.url.rpartition(":")[2])
        await control.stop()
        await fleet.start()
        assert (await fleet.ready())[0].replica_id == replica.replica_id
        assert await fleet.metric("penstock_fleet_generation") == 1
        # Another host has registered meanwhile, which this one can't know.
        control.generations.pass_to("elsewhere")
        await control.start(port)
        await readiness_of(fleet, "superseded")
        assert len(fleet.engines()) == 1


@pytest.mark.integration
async def test_a_fleet_without_a_generation_states_nothing_and_says_why(tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9"
    async with running_fleet(tmp_path / "fleet", PENSTOCK_INTERNAL_API_URL=nobody) as (_, fleet):
        await readiness_of(fleet, "waits for control to grant fleet default a generation")
        headers = {"authorization": f"Bearer {OF_A_GATEWAY}"}
        for call in (
            fleet.session.get(f"{fleet.base}/replicas", headers=headers),
            fleet.session.post(f"{fleet.base}/demand", headers=headers),
        ):
            async with call as answer:
                assert answer.status == 503
        async with fleet.session.get(f"{fleet.base}/healthz") as answer:
            assert answer.status == 200
        assert await fleet.end() == 0
