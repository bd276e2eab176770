"""Deployments that sleep: never while they are needed, always woken by whoever waits, and what an
operator stopped is left alone."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.codec import decode, encode
from serving.contract.credential import ServiceAuthenticator
from serving.contract.records import DeploymentRecord, DeploymentTimeouts
from serving.contract.replica import ReplicaRecord
from serving.engine.simulated.adapter import SimulatedAdapter
from serving.feed.changes import ChangeBatch, RecordChange
from serving.fleet import reconciler as module
from serving.fleet import scale_to_zero
from serving.fleet.config import FleetConfig
from serving.fleet.reconciler import FleetReconciler
from serving.fleet.replica import ManagedReplica
from serving.fleet.state_store import FleetStore, StoredFleet
from tests.fixtures import catalog

SLEEPS = catalog.deployment(
    timeouts=DeploymentTimeouts(wake_seconds=60.0), sleep_after_seconds=30.0
)
KINDS: dict[str, DeploymentRecord] = {
    "sleeps": SLEEPS,
    "never sleeps": msgspec.structs.replace(SLEEPS, sleep_after_seconds=0.0),
    "stopped": msgspec.structs.replace(SLEEPS, replicas_min=0),
}
ID = SLEEPS.deployment_id


class Memory(FleetStore):
    """A disk that forgets nothing and takes no time."""

    kept = b""

    def save(self, fleet: StoredFleet) -> bool:
        self.kept = encode(fleet)
        return True


class Idle:
    """The life of a replica whose states a test sets."""

    def __init__(self, replica: ManagedReplica) -> None:
        self.replica = replica

    async def run(self) -> None:
        await asyncio.Event().wait()


@dataclass
class World:
    """A fleet with one deployment, engines that change by hand, and a clock that does."""

    folder: Path
    now: float = 1_000.0
    kind: str = "sleeps"
    needed_at: float = float("-inf")
    """When somebody last asked, of a deployment that may sleep."""
    ready_at: float = float("-inf")
    fleet: FleetReconciler = field(init=False)

    def start(self, kept: bytes = b"") -> None:
        config = FleetConfig(
            "http://control", "", ServiceAuthenticator(()), "x", 1, self.folder, 20_000, 1
        )
        session: Any = None
        self.fleet = FleetReconciler(
            config, {"simulated": SimulatedAdapter()}, Memory(self.folder), session
        )
        self.fleet.samples.add = lambda samples: None  # type: ignore[method-assign]
        self.fleet.own(1)
        self.fleet.adopt(decode(kept, StoredFleet) if kept else StoredFleet())

    def deploy(self, kind: str) -> None:
        self.kind = kind
        if kind != "sleeps":
            self.needed_at = float("-inf")
        self.fleet.apply(ChangeBatch(1, True, (RecordChange("deployment", ID, KINDS[kind]),)))
        self.fleet.reconcile()

    def restart(self) -> None:
        """Another fleet finds what this one wrote, and none of its engines."""
        store = self.fleet.store
        assert isinstance(store, Memory)
        self.start(store.kept)
        self.fleet.reconcile()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.fleet.reconcile()

    def ask(self, deployment_id: str = ID) -> None:
        self.fleet.note_demand([deployment_id])
        if self.kind == "sleeps":
            self.needed_at = self.now
        self.fleet.reconcile()

    def step(self) -> None:
        """Have every engine do what it would do next."""
        for replica in self.living:
            if replica.is_leaving:
                replica.is_ending = replica.state != "ready"
                replica.set_state("draining" if replica.state == "ready" else "stopped")
            elif replica.state != "ready":
                order = {"pending": "loading", "loading": "canary"}
                replica.set_state(order.get(replica.state, "ready"))  # type: ignore[arg-type]
                self.ready_at = self.now if replica.state == "ready" else self.ready_at
        self.fleet.reconcile()

    def fail(self) -> None:
        for replica in self.staying:
            replica.set_state("failed", reason="a test")
        self.fleet.reconcile()

    @property
    def living(self) -> list[ManagedReplica]:
        return [one for one in self.fleet.replicas.values() if not one.is_over]

    @property
    def staying(self) -> list[ManagedReplica]:
        return [one for one in self.living if not one.is_leaving]

    @property
    def is_asleep(self) -> bool:
        return ID in self.fleet.scale_to_zero.idle_tracker.asleep

    @property
    def told(self) -> ReplicaRecord | None:
        """What readers of the feed hear of the sleeper."""
        return self.fleet.feed.record_of(ID)

    def must_be_right(self) -> None:
        assert (self.told is not None) == self.is_asleep
        assert len(self.staying) <= 1
        if self.is_asleep:
            assert self.kind == "sleeps"
            assert self.now - self.needed_at >= SLEEPS.sleep_after_seconds
            assert self.now - self.ready_at >= SLEEPS.sleep_after_seconds
            assert self.staying == []
        elif self.kind == "stopped":
            assert self.staying == []
        else:
            assert self.staying or any(one.is_stopping for one in self.living)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A fleet that was told nothing yet; a test starts it in its loop."""
    made = World(tmp_path)
    clock = SimpleNamespace(monotonic=lambda: made.now, time_ns=lambda: 10**15)
    for each in (module, scale_to_zero):
        monkeypatch.setattr(each, "time", clock)
    monkeypatch.setattr(module, "ReplicaLifecycle", Idle)
    return made


def awake(world: World) -> ManagedReplica:
    """Return the replica of a deployment that is ready just now."""
    world.start()
    world.deploy("sleeps")
    for _ in range(3):
        world.step()
    [replica] = world.staying
    assert replica.state == "ready"
    return replica


async def test_it_sleeps_once_nobody_asked_for_long_enough(world: World) -> None:
    replica = awake(world)
    world.wait(29)
    assert not world.is_asleep
    world.ask()
    world.wait(29)
    assert not world.is_asleep
    world.wait(2)
    assert (world.is_asleep, replica.is_leaving) == (True, True)
    assert world.told is not None
    assert world.told.state == "asleep"
    assert set(world.told.capabilities) == set(SimulatedAdapter().capabilities(SLEEPS))
    assert world.fleet.deployment_states() == {ID: "asleep"}


async def test_what_an_engine_did_counts_as_use_without_any_report(world: World) -> None:
    replica = awake(world)
    world.wait(29)
    busy = replica.counted.busy_seconds + 0.2
    replica.counted = msgspec.structs.replace(replica.counted, busy_seconds=busy)
    world.wait(29)
    assert not world.is_asleep
    world.wait(31)
    assert world.is_asleep


async def test_who_is_woken_while_it_drains_is_called_back(world: World) -> None:
    replica = awake(world)
    world.wait(31)
    world.step()
    assert (world.is_asleep, replica.state) == (True, "draining")
    world.ask()
    assert (world.is_asleep, replica.is_leaving, len(world.living)) == (False, False, 1)
    world.wait(31)
    assert not world.is_asleep, "it is not ready yet"
    world.step()
    assert replica.state == "ready"


async def test_who_wakes_waits_for_the_memory_of_those_that_end(world: World) -> None:
    replica = awake(world)
    world.wait(31)
    world.step()
    replica.is_ending = True
    world.ask()
    assert (world.is_asleep, world.staying) == (False, [])
    replica.set_state("stopped")
    world.fleet.reconcile()
    assert [one.state for one in world.staying] == ["pending"]


async def test_one_that_loads_is_not_put_to_sleep_and_one_that_fails_is(world: World) -> None:
    awake(world)
    world.wait(31)
    world.step()
    world.step()
    world.ask()
    world.step()
    for _ in range(10):  # its clients have given up long ago
        world.wait(29)
    assert not world.is_asleep
    for _ in range(2):
        world.step()
    world.wait(29)
    assert not world.is_asleep, "it woke just now"
    world.fail()
    world.wait(2)
    assert world.is_asleep, "it starts again and again, for nobody"


async def test_how_long_it_loads_is_measured_and_kept(world: World) -> None:
    replica = awake(world)
    replica.took_seconds = 42.0
    replica.set_state("draining")
    replica.set_state("ready")
    world.wait(31)
    assert world.told is not None
    assert world.told.load_seconds == 42.0
    world.restart()
    world.ask()
    [replica] = world.staying
    assert replica.record.load_seconds == 42.0


async def test_a_fleet_that_starts_anew_neither_wakes_nor_forgets(world: World) -> None:
    awake(world)
    world.wait(31)
    for _ in range(2):
        world.step()
    world.restart()
    assert (world.is_asleep, world.living) == (True, [])
    assert world.told is not None
    world.ask()
    assert (world.is_asleep, len(world.staying), world.told) == (False, 1, None)
    assert world.fleet.scale_to_zero.wake_counts == {ID: 1}
    world.restart()
    assert (world.is_asleep, len(world.staying)) == (False, 1)


async def test_an_operators_stop_is_no_sleep(world: World) -> None:
    awake(world)
    world.wait(31)
    world.deploy("stopped")
    assert (world.is_asleep, world.told) == (False, None)
    for _ in range(3):
        world.ask()
        world.step()
    assert world.living == []
    assert world.fleet.deployment_states() == {ID: "stopped"}
    world.ask("dep_unknown")
    world.deploy("sleeps")
    assert (world.is_asleep, len(world.staying)) == (False, 1), "an operator starts it awake"


OPERATIONS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([1.0, 10.0, 29.0, 31.0])),
    st.tuples(st.just("deploy"), st.sampled_from(sorted(KINDS))),
    st.tuples(st.sampled_from(["ask", "step", "step", "fail", "restart"])),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing is written to it."""
    return tmp_path_factory.mktemp("fleet")


@settings(max_examples=60)
@given(operations=st.lists(OPERATIONS, min_size=5, max_size=40))
def test_never_asleep_with_demand_always_woken_by_it_and_never_from_a_stop(
    folder: Path, operations: list[tuple[Any, ...]]
) -> None:
    async def play(world: World) -> None:
        world.start()
        world.deploy("sleeps")
        for name, *words in operations:
            was_asleep = world.is_asleep
            getattr(world, name)(*words)
            world.must_be_right()
            if name == "restart":
                assert world.is_asleep == was_asleep
            assert not (name == "ask" and world.is_asleep)
        if world.kind == "sleeps":  # whatever happened, in the end it sleeps, and wakes
            for _ in range(4):
                world.step()
            world.wait(31)
            world.wait(31)
            assert world.is_asleep
            world.ask()
            world.must_be_right()
            assert not world.is_asleep

    with pytest.MonkeyPatch.context() as patch:
        world = World(folder)
        clock = SimpleNamespace(monotonic=lambda: world.now, time_ns=lambda: 10**15)
        for each in (module, scale_to_zero):
            patch.setattr(each, "time", clock)
        patch.setattr(module, "ReplicaLifecycle", Idle)
        asyncio.run(play(world))
