"""What the fleet remembers survives it, and belongs to one fleet only."""

import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from serving.contract.records import DeploymentRecord
from serving.fleet import state_store
from serving.fleet.engine_process import ProcessIdentity
from serving.fleet.state_store import FleetStore, StoredFleet, StoredReplica

DEPLOYMENT = DeploymentRecord(
    deployment_id="dep_1",
    variant_id="var_1",
    fleet_id="default",
    engine="simulated",
    weights="none",
    replicas_min=1,
    replicas_max=1,
)
FLEET = StoredFleet(
    replicas=(
        StoredReplica(
            replica_id="r1",
            deployment=DEPLOYMENT,
            url="",
            port=8_710,
            state="ready",
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            leader=ProcessIdentity(12, "34@boot"),
        ),
    ),
    deployments=(DEPLOYMENT,),
)


def test_what_was_saved_is_found_again(tmp_path: Path) -> None:
    store = FleetStore(tmp_path / "fleet")
    assert store.open() == StoredFleet()
    store.save(FLEET)
    store.close()
    again = FleetStore(tmp_path / "fleet")
    assert again.open() == FLEET
    again.close()


def test_nobody_waits_for_the_disk_who_does_not_ask_and_what_is_last_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_free, fsync = threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        assert is_free.wait(60)
        fsync(descriptor)

    monkeypatch.setattr(state_store.os, "fsync", slow)
    store = FleetStore(tmp_path)
    store.open()
    first, last = store.save(StoredFleet(asleep=("dep_1",))), store.save(FLEET)
    assert not first.done()
    assert store.save(FLEET) is last
    is_free.set()
    store.close()
    assert first.result()
    assert last.result()
    again = FleetStore(tmp_path)
    assert again.open() == FLEET
    again.close()


def test_a_broken_file_is_kept_aside(tmp_path: Path) -> None:
    (tmp_path / "fleet.json").write_text("{")
    store = FleetStore(tmp_path)
    assert store.open() == StoredFleet()
    assert (tmp_path / "fleet.unreadable").read_text() == "{"
    store.close()
