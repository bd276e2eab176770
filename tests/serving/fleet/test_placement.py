"""GPUs for replicas: none is given twice and none is lost, whenever the fleet dies."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.contract.records import DeploymentRecord
from serving.contract.replica_token import ReplicaTokens
from serving.contract.resources import ReplicaResources
from serving.engine.adapter import GIB, ReplicaNeeds
from serving.engine.simulated.adapter import SimulatedAdapter
from serving.engine.vllm import VllmAdapter
from serving.fleet.config import FleetTimings
from serving.fleet.devices import Gpu, GpuReport, read_gpus
from serving.fleet.engine_process import LogFile
from serving.fleet.launcher import (
    LaunchHandle,
    LaunchObservation,
    LaunchRequest,
    NoRoom,
    StartRefused,
    StartupLimiter,
)
from serving.fleet.lifecycle import ReplicaLifecycle
from serving.fleet.local_launcher import total_bytes
from serving.fleet.placement import Placement, choose_gpus
from serving.fleet.replica import FleetServices, ManagedReplica, StoredReplica
from tests.fixtures import catalog
from tests.fixtures.nvml_replay import looks
from tests.fixtures.waiting import eventually

GPU_COUNT = 4
DEPLOYMENT = catalog.deployment()


def replica_of(replica_id: str, count: int, services: FleetServices) -> ManagedReplica:
    resources = ReplicaResources("H100", tensor_parallel_size=count)
    deployment = msgspec.structs.replace(DEPLOYMENT, resources=resources)
    log_file = LogFile(Path("/nonexistent"))
    return ManagedReplica(replica_id, deployment, SimulatedAdapter(), log_file, services)


def services_of(launcher: Any, **others: Any) -> FleetServices:
    """What a replica needs here: a launcher, and what a test names."""

    async def unused(*_: object) -> bool:
        return True

    settings: dict[str, Any] = {
        "timings": FleetTimings(poll_seconds=0.01), "loading": StartupLimiter(1), "session": None,
        "tokens": ReplicaTokens(["root"]), "changed": lambda _: None, "save": lambda: None,
        "saved": unused, "place": unused, "check_command": unused,
    }  # fmt: skip
    return FleetServices(**{**settings, "launcher": launcher, **others})


class Host:
    """Four GPUs, the processes on them by their replica, and memory that was not returned yet. A
    process that has just started is not on its GPUs yet: NVML does not show it. To a replica this
    is its launcher too."""

    def __init__(self) -> None:
        self.processes: dict[str, tuple[int, ...]] = {}
        self.shown: set[str] = set()
        self.unreturned: list[int] = []
        self.foreign: set[int] = set()
        self.services = services_of(self)

    def find(self, replica_id: str) -> LaunchHandle | None:
        return {"id": replica_id} if replica_id in self.processes else None

    def observe(self, handle: LaunchHandle) -> LaunchObservation:
        is_there = handle["id"] in self.processes
        return LaunchObservation(handle, is_alive=is_there, is_left=is_there)

    def look(self) -> GpuReport:
        shown = (self.processes[id_] for id_ in self.shown)
        used = {*self.unreturned, *self.foreign}.union(*shown)
        return GpuReport(
            tuple(
                Gpu(index, "NVIDIA H100", 80 * GIB, "in use" if index in used else "")
                for index in range(GPU_COUNT)
            )
        )


class Devices(RuleBasedStateMachine):
    """A fleet that does one step of a start at a time, and may die before and after each."""

    def __init__(self) -> None:
        super().__init__()
        self.host = Host()
        self.disk: tuple[StoredReplica, ...] = ()
        self.number = 0
        self.begin(())

    def begin(self, stored: tuple[StoredReplica, ...]) -> None:
        """Start a fleet on what is on disk: it takes over what lives, and forgets the rest."""
        self.replicas: dict[str, ManagedReplica] = {}
        for each in stored:
            if each.replica_id in self.host.processes:
                replica = replica_of(each.replica_id, len(each.devices), self.host.services)
                assert replica.restore(each)
                self.replicas[each.replica_id] = replica
        self.placement = Placement(
            self.replicas.values, {"simulated": SimulatedAdapter()},
            look=self.host.look, look_seconds=0,
        )  # fmt: skip

    def some(self, data: st.DataObject, found: list[str]) -> str | None:
        return data.draw(st.sampled_from(sorted(found))) if found else None

    @rule(count=st.integers(1, 2), steps=st.sampled_from((3, 2, 1)), dies=st.booleans())
    def launch(self, count: int, steps: int, dies: bool) -> None:
        """Go some steps of a start: choose GPUs, store that, start a process on them."""
        replica = self.place(count)
        if replica and steps > 1:
            self.save()
        if replica and steps > 2:
            self.start(replica.replica_id)
        if dies:
            self.die()

    def place(self, count: int) -> ManagedReplica | None:
        self.number += 1
        replica = replica_of(f"r{self.number}", count, self.host.services)
        self.replicas[replica.replica_id] = replica
        try:
            asyncio.run(self.placement.place(replica))
        except NoRoom:
            del self.replicas[replica.replica_id]
            return None
        assert len(set(replica.devices)) == count
        assert self.host.look().free.issuperset(replica.devices)
        return replica

    @rule()
    def save(self) -> None:
        self.disk = tuple(each.stored for each in self.replicas.values() if not each.is_gone)

    @rule(data=st.data())
    def start_one(self, data: st.DataObject) -> None:
        """Start a replica that is on disk."""
        told = {each.replica_id for each in self.disk}
        ready = [
            id_
            for id_, replica in self.replicas.items()
            if replica.handle is None and not replica.is_over and id_ in told
        ]
        if id_ := self.some(data, ready):
            self.start(id_)

    def start(self, replica_id: str) -> None:
        [devices] = [each.devices for each in self.disk if each.replica_id == replica_id]
        taken = {index for one in self.host.processes.values() for index in one}
        assert taken.isdisjoint(devices), "given twice"
        self.host.processes[replica_id] = devices
        self.replicas[replica_id].handle = {"id": replica_id}

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """A replica fails; its processes may be there a while longer."""
        if id_ := self.some(data, list(self.replicas)):
            self.replicas[id_].state = "failed"

    @rule(data=st.data())
    def process_takes_memory(self, data: st.DataObject) -> None:
        if id_ := self.some(data, list(self.host.processes)):
            self.host.shown.add(id_)

    @rule(data=st.data())
    def processes_end(self, data: st.DataObject) -> None:
        if id_ := self.some(data, list(self.host.processes)):
            devices = self.host.processes.pop(id_)
            if id_ in self.host.shown:
                self.host.shown.remove(id_)
                self.host.unreturned += devices
            if id_ in self.replicas:
                self.replicas[id_].state = "failed"

    @precondition(lambda self: self.host.unreturned)
    @rule()
    def memory_returns(self) -> None:
        self.host.unreturned.pop()

    @rule()
    def foreign_process(self) -> None:
        self.host.foreign ^= {GPU_COUNT - 1}

    @rule()
    def die(self) -> None:
        self.begin(self.disk)

    @invariant()
    def no_gpu_has_two_replicas(self) -> None:
        held = [i for r in self.replicas.values() if not r.is_gone for i in r.devices]
        assert len(held) == len(set(held))

    def teardown(self) -> None:
        """When all is over, every GPU can be given again."""
        self.host.processes, self.host.shown = {}, set()
        for replica in self.replicas.values():
            replica.state = "failed"
        self.host.unreturned, self.host.foreign = [], set()
        last = self.replicas["last"] = replica_of("last", GPU_COUNT, self.host.services)
        asyncio.run(self.placement.place(last))
        assert len(last.devices) == GPU_COUNT


class TestDevices(Devices.TestCase):  # type: ignore[valid-type, misc]
    settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def free_twice(needs: ReplicaNeeds, *reports: GpuReport, holders: dict[int, str]) -> Any:
    return choose_gpus(needs, reports[-1], reports[0].free, holders)


def one_look(name: str) -> Iterator[GpuReport]:
    return (read_gpus(nvml, environ={}) for nvml in looks(name))


@pytest.mark.parametrize(
    ("name", "count", "holders", "message"),
    [
        ("two_free", 2, {0: "r1"}, "no room: needs 2 × H100, 1 free (GPU 0: given to replica r1)"),
        (
            "busy", 2, {},
            "no room: needs 2 × H100, 1 free (GPU 0: 43.0 GiB in use by process 4711 (python3))",
        ),
        (
            "no_driver", 2, {},
            "no room: needs 2 × H100, 0 free (NVML: NVML Shared Library Not Found)",
        ),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(
    name: str, count: int, holders: dict[int, str], message: str
) -> None:
    report = next(one_look(name))
    with pytest.raises(NoRoom) as caught:
        choose_gpus(ReplicaNeeds(0, "H100", count), report, report.free, holders)
    assert str(caught.value) == message


def test_a_gpu_that_was_busy_at_the_look_before_is_not_free_yet() -> None:
    [before], [after] = one_look("busy"), one_look("two_free")
    with pytest.raises(NoRoom, match="0: not free long enough yet"):
        choose_gpus(ReplicaNeeds(0, "H100", 2), after, before.free, {})
    assert choose_gpus(ReplicaNeeds(0, "H100", 1), after, before.free, {}) == (1,)


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        (ReplicaNeeds(0, "H100", 4), r"needs 4 × H100, and this host has 2 × NVIDIA H100 80GB"),
        (ReplicaNeeds(0, "L4", 1), r"needs 1 × L4, and this host has 2 × NVIDIA H100 80GB"),
        (ReplicaNeeds(0, "H100", 2, 100 * GIB), r"100\.0 GiB on each of 2 × H100, which have 79"),
    ],
)
def test_what_this_host_could_never_run_is_refused(needs: ReplicaNeeds, message: str) -> None:
    [report] = one_look("two_free")
    with pytest.raises(StartRefused, match=message):
        choose_gpus(needs, report, report.free, {})


def test_a_lost_card_refuses_nobody() -> None:
    before, after = one_look("vanishes")
    with pytest.raises(NoRoom):
        choose_gpus(ReplicaNeeds(0, "H100", 2), after, before.free, {})


async def test_a_start_comes_after_its_gpus_are_on_disk() -> None:
    """An engine is started on the GPUs that the fleet's state names, and sees no others."""
    on_disk: list[StoredReplica] = []
    started: list[LaunchRequest] = []
    is_done = asyncio.Event()

    async def saved(replica: ManagedReplica) -> bool:
        on_disk.append(replica.stored)
        return True

    class Full(Host):
        async def start(self, request: LaunchRequest) -> LaunchHandle:
            assert on_disk[-1].devices == (0, 1)
            started.append(request)
            if len(started) == 3:
                is_done.set()
            raise NoRoom("no room: needs much, nothing is free")

    placement = Placement(
        lambda: [replica], {"simulated": SimulatedAdapter()},
        look=lambda: read_gpus(looks("two_free")[0], environ={}), look_seconds=0,
    )  # fmt: skip
    services = services_of(Full(), saved=saved, place=placement.place)
    replica = replica_of("r1", 2, services)
    life = asyncio.create_task(ReplicaLifecycle(replica).run())
    await is_done.wait()
    assert (replica.state, replica.is_over) == ("pending", False)
    assert replica.record.reason == "no room: needs much, nothing is free"
    assert started[0].spec.environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)


def of_no_gpu(replica_id: str) -> ManagedReplica:
    replica = replica_of(replica_id, 1, services_of(None))
    replica.deployment = DEPLOYMENT
    return replica


async def test_nvml_that_hangs_holds_up_nobody_else_and_is_asked_again_once_it_answers() -> None:
    answers, questions = threading.Event(), []

    def look() -> GpuReport:
        questions.append(1)
        answers.wait(60)
        return read_gpus(looks("two_free")[0], environ={})

    placement = Placement(
        lambda: [], {"simulated": SimulatedAdapter()},
        look=look, look_seconds=0, answer_seconds=0.5,
    )  # fmt: skip
    gpus, plain = replica_of("r1", 2, services_of(None)), of_no_gpu("r2")
    try:
        first = asyncio.create_task(placement.place(gpus))
        await eventually(lambda: _true(bool(questions)))
        await placement.place(plain)
        assert plain.is_placed
        assert not first.done()
        with pytest.raises(NoRoom, match="NVML does not answer"):
            await first
        with pytest.raises(NoRoom, match="NVML does not answer"):
            await placement.place(gpus)
        assert len(questions) == 1
    finally:
        answers.set()

    async def is_placed() -> bool:
        try:
            await placement.place(gpus)
        except NoRoom:
            return False
        return True

    await eventually(is_placed)
    assert gpus.devices == (0, 1)


async def _true(value: bool) -> bool:
    return value


async def test_who_finds_no_gpu_at_the_first_look_holds_up_no_others() -> None:
    [report] = one_look("busy")
    placement = Placement(
        lambda: [], {"simulated": SimulatedAdapter()}, look=lambda: report, look_seconds=600
    )
    with pytest.raises(NoRoom, match="1 free"):
        await asyncio.wait_for(placement.place(replica_of("r1", 2, services_of(None))), 60)


async def test_memory_is_waited_for_before_weights_are_read() -> None:
    class Large(SimulatedAdapter):
        def needs(self, deployment: DeploymentRecord) -> ReplicaNeeds:
            return ReplicaNeeds(total_bytes())

    replica = of_no_gpu("r1")
    placement = Placement(lambda: [replica], {"simulated": Large()})
    with pytest.raises(NoRoom, match="GiB is available"):
        await placement.place(replica)
    assert not replica.is_placed


async def test_a_deployment_that_cannot_be_planned_keeps_no_other_from_its_plan() -> None:
    """And however many there are, the host is looked at as often."""
    calls: list[int] = []

    def replicas() -> list[ManagedReplica]:
        calls.append(1)
        return []

    engines = {"simulated": SimulatedAdapter(), "vllm": VllmAdapter("cuda")}
    placement = Placement(replicas, engines, look=lambda: next(one_look("two_free")))
    nothing = ("--gpu-memory-utilization", "0")
    weights = str(Path(__file__).parents[3] / "infra" / "demo_model" / "weights" / "bf16")
    bad = msgspec.structs.replace(
        DEPLOYMENT, deployment_id="bad", engine="vllm", weights=weights, engine_arguments=nothing
    )
    one = await placement.plans([DEPLOYMENT], {})
    count = len(calls)
    many = await placement.plans([bad, DEPLOYMENT, DEPLOYMENT, DEPLOYMENT], {})
    assert "division by zero; correct them" in many.plans[0].room
    assert many.plans[1:] == one.plans * 3
    assert len(calls) == 2 * count
