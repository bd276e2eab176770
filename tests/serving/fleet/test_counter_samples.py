"""Samples wait on disk: in order, once, within bounds, whatever ends the fleet."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from serving.contract.engine_counters import EngineSample
from serving.fleet import engine_counters as module
from serving.fleet.engine_counters import CounterSamples
from serving.fleet.state_store import FileWriter

pytestmark = pytest.mark.unit
BEGUN = datetime(2026, 11, 21, 12, tzinfo=UTC)


def sample(minute: int, replica_id: str = "r1", *, is_last: bool = False) -> EngineSample:
    at = BEGUN + timedelta(minutes=minute)
    tokens = minute * 10
    counts = (tokens, tokens, 0, minute)
    return EngineSample(replica_id, "dep_1", BEGUN, at, *counts, is_last=is_last)


def test_what_was_not_acknowledged_is_found_again(tmp_path: Path) -> None:
    path, disk = tmp_path / "samples.json", FileWriter()
    first = CounterSamples(path, disk)
    assert not first.arrived.is_set()
    first.add([sample(1), sample(2), sample(3)])
    first.forget(first.oldest(1))
    disk.close()
    disk = FileWriter()
    again = CounterSamples(path, disk)
    assert again.arrived.is_set()
    assert again.oldest(10) == (sample(2), sample(3))
    again.forget(again.oldest(10))
    assert not again.arrived.is_set()
    disk.close()
    assert len(CounterSamples(path, disk)) == 0


def test_what_came_while_others_were_under_way_stays(tmp_path: Path) -> None:
    samples = CounterSamples(tmp_path / "samples.json", FileWriter())
    samples.add([sample(1)])
    sent = samples.oldest(10)
    samples.add([sample(2)])
    samples.forget(sent)
    assert samples.oldest(10) == (sample(2),)


def test_too_many_lose_their_oldest_but_no_replicas_last_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAMPLES_KEPT_MAX", 3)
    samples = CounterSamples(tmp_path / "samples.json", FileWriter())
    samples.add([sample(1, "gone"), sample(2, "gone", is_last=True)])
    samples.add([sample(minute) for minute in (3, 4, 5)])
    assert samples.oldest(9) == (sample(2, "gone", is_last=True), sample(4), sample(5))
    assert samples.dropped_count == 2


def test_a_disk_that_refuses_costs_nothing_while_the_fleet_lives(tmp_path: Path) -> None:
    path, disk = tmp_path / "away" / "samples.json", FileWriter()
    samples = CounterSamples(path, disk)
    samples.add([sample(1)])
    disk.put(path.parent.mkdir)
    samples.add([sample(2)])
    disk.close()
    assert CounterSamples(path, disk).oldest(9) == (sample(1), sample(2))
