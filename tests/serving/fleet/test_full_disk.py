"""A disk that takes nothing: sound replicas go on, none is started, no engine is left over."""

import os
import signal
import time
from pathlib import Path

import pytest

from serving.fleet import engine_process
from serving.fleet.engine_process import LogFile
from serving.fleet.state_store import FleetStore, StoredFleet
from tests.fixtures.fleet_process import running_fleet
from tests.fixtures.waiting import eventually
from tests.serving.fleet.test_reconciler import DEPLOYMENT, PATIENT, failed

FAILURES = "penstock_fleet_state_failures_total"


def fill(directory: Path) -> Path:
    """Let no state be written, for root neither; what is returned is in the way."""
    in_the_way = directory / "fleet.new"
    directory.mkdir(exist_ok=True)
    while True:
        try:
            in_the_way.mkdir()
        except FileExistsError:  # it is being written
            time.sleep(0.005)
        else:
            return in_the_way


def test_what_was_not_written_is_written_by_the_next_try(tmp_path: Path) -> None:
    store = FleetStore(tmp_path)
    assert store.open() == StoredFleet()
    in_the_way = fill(tmp_path)
    assert not store.save(StoredFleet(asleep=("dep_1",))).result()
    assert (store.is_behind, store.failures) == (True, 1)
    in_the_way.rmdir()
    assert store.save(StoredFleet(asleep=("dep_1",))).result()
    assert (store.is_behind, store.failures) == (False, 1)
    store.close()
    again = FleetStore(tmp_path)
    assert again.open() == StoredFleet(asleep=("dep_1",))
    again.close()


def test_an_old_log_that_is_not_kept_is_cut_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "BYTES_MAX", 10)
    path = tmp_path / "r.log"
    path.write_text("x" * 20)
    (tmp_path / "r.log.1").mkdir()
    LogFile(path).trim()
    assert path.read_text() == ""


@pytest.mark.full
@pytest.mark.integration
async def test_a_sound_replica_outlives_a_full_disk_and_a_new_one_waits(tmp_path: Path) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        control.deploy(DEPLOYMENT)
        [sound] = await process.ready()
        in_the_way = fill(process.directory)

        async def is_probed_on() -> bool:
            [same] = await process.ready()
            assert same.replica_id == sound.replica_id
            return same.probe_output_tokens >= sound.probe_output_tokens + 2

        await eventually(is_probed_on)
        assert await process.metric(FAILURES) >= 2

        os.kill(process.leader(sound.replica_id), signal.SIGKILL)
        refused = "the disk does not take the fleet's state"

        async def is_refused() -> bool:
            return refused in {one.reason for one in await failed(process)}

        await eventually(is_refused)
        assert process.engines() == []

        in_the_way.rmdir()
        [fresh] = await process.ready()
        assert len(process.engines()) == 1
        assert process.leader(fresh.replica_id) in process.engines()
        assert await process.end() == 0
        assert process.engines() == []
