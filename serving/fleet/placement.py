"""Gives replicas their GPUs, and says beforehand what a deployment needs and whether there is room.

A GPU belongs to a replica from the moment that it is chosen until the replica's processes are gone.
That is stored with the replica before anything starts on it. A GPU that no replica has is free once
two looks in a row find its memory returned and no process on it, whosoever that was.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from serving.contract.deployment_plan import DeploymentPlan, DeploymentPlans
from serving.contract.records import DeploymentRecord
from serving.engine.adapter import GIB, EngineAdapter, ReplicaNeeds
from serving.engine.weights import WeightsUnreadable
from serving.fleet.devices import Gpu, GpuReport, read_gpus
from serving.fleet.launcher import LaunchError, NoRoom, StartRefused
from serving.fleet.local_launcher import available_bytes, require_memory, total_bytes
from serving.fleet.replica import ManagedReplica
from serving.fleet.rollout import plan_rollout

COUNT_MAX = 64
"""Replicas of a host, where nothing else is configured."""
LOOK_SECONDS = 1.0
"""Between two looks at the GPUs."""
ANSWER_SECONDS = 10.0
"""For NVML to answer: on a broken card it may never."""
SILENT = GpuReport(problem="NVML does not answer")


class _HostRoom(NamedTuple):
    """What of this host is taken: GPUs, by the replica that each is given to, and ports; and the
    memory that is not."""

    holders: Mapping[int, str]
    replica_count: int
    available_bytes: int


class Placement:
    """`replicas` returns all replicas of the fleet, ended ones too; `count_max` may run at once;
    `look` reads the GPUs, which may block. Where replicas are not local, a cluster gives GPUs."""

    def __init__(
        self,
        replicas: Callable[[], Iterable[ManagedReplica]],
        engines: Mapping[str, EngineAdapter],
        *,
        count_max: int = COUNT_MAX,
        look: Callable[[], GpuReport] = read_gpus,
        look_seconds: float = LOOK_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        is_local: bool = True,
    ) -> None:
        self._replicas = replicas
        self._engines = engines
        self._count_max = count_max
        self._look = look
        self._look_seconds = look_seconds
        self._answer_seconds = answer_seconds
        self._is_local = is_local
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "nvml")
        self._unanswered: asyncio.Future[GpuReport] | None = None

    async def place(self, replica: ManagedReplica) -> None:
        """Give a replica the GPUs that it needs. Raises NoRoom, StartRefused, WeightsUnreadable."""
        needs = replica.needs = await asyncio.to_thread(self._needs, replica.deployment)
        if not self._is_local:
            return
        if needs.memory_bytes > (all_bytes := total_bytes()):
            wanted, there = needs.memory_bytes / GIB, all_bytes / GIB
            raise StartRefused(f"needs {wanted:.1f} GiB of memory, and this host has {there:.1f}")
        require_memory(needs.memory_bytes)
        self._require_port(self._count())
        if not needs.gpu_count:
            replica.is_placed = True
            return
        async with self._turn:
            earlier = await self._read()
            # A second look would find no more than the first.
            choose_gpus(needs, earlier, earlier.free, self._holders())
            await asyncio.sleep(self._look_seconds)
            report = await self._read()
            devices = choose_gpus(needs, report, earlier.free, self._holders())
            self._require_port(self._count())  # others may have been placed meanwhile
            replica.devices, replica.is_placed = devices, True

    async def plans(
        self, deployments: Iterable[DeploymentRecord], load_seconds: Mapping[str, float]
    ) -> DeploymentPlans:
        """Return what each deployment needs and how it would be rolled; those that others run have
        no plan."""
        own = [each for each in deployments if each.engine != "external"]
        needs = await asyncio.to_thread(lambda: [self._needs_or_problem(each) for each in own])
        has_gpus = any(isinstance(each, ReplicaNeeds) and each.gpu_count for each in needs)
        report = await self._read() if has_gpus else GpuReport()
        ready = Counter(
            each.deployment.deployment_id for each in self._replicas() if each.state == "ready"
        )
        room = _HostRoom(self._holders(), self._count(), available_bytes())
        plans = []
        for deployment, found in zip(own, needs, strict=True):
            id_ = deployment.deployment_id
            seconds = load_seconds.get(id_)
            if isinstance(found, str):
                plans.append(DeploymentPlan(id_, "", "rolling", room=found, load_seconds=seconds))
                continue
            missing = self._missing(found, report, room)
            plan = plan_rollout(
                deployment, has_room=not missing, ready_count=ready[id_], load_seconds=seconds
            )
            plans.append(DeploymentPlan(id_, str(found), *plan, missing, found.estimate, seconds))
        return DeploymentPlans(tuple(plans))

    async def _read(self) -> GpuReport:
        """Look at the GPUs; at once without an answer while NVML owes an earlier one."""
        if self._unanswered is not None and not self._unanswered.done():
            return SILENT
        looking = asyncio.get_running_loop().run_in_executor(self._thread, self._look)
        # What runs in a thread cannot be cancelled: it goes on, and says by its end that NVML is
        # back.
        await asyncio.wait((looking,), timeout=self._answer_seconds)
        if looking.done():
            return looking.result()
        self._unanswered = looking
        return SILENT

    def _needs(self, deployment: DeploymentRecord) -> ReplicaNeeds:
        try:
            return self._engines[deployment.engine].needs(deployment)
        except ValueError as error:
            raise StartRefused(str(error)) from error
        except ArithmeticError as error:
            words = f"its arguments do not tell what it needs: {error}; correct them"
            raise StartRefused(words) from error

    def _needs_or_problem(self, deployment: DeploymentRecord) -> ReplicaNeeds | str:
        try:
            return self._needs(deployment)
        except (StartRefused, WeightsUnreadable) as error:
            return str(error)

    def _missing(self, needs: ReplicaNeeds, report: GpuReport, room: _HostRoom) -> str:
        """Return what one more replica lacks now, empty if nothing."""
        if not self._is_local:
            return ""
        try:
            if needs.gpu_count:
                choose_gpus(needs, report, report.free, room.holders)
            require_memory(needs.memory_bytes, room.available_bytes)
            self._require_port(room.replica_count)
        except (LaunchError, StartRefused) as error:
            return str(error)
        return ""

    def _count(self) -> int:
        """Return how many replicas have a port."""
        return sum(each.is_placed and not each.is_gone for each in self._replicas())

    def _require_port(self, count: int) -> None:
        """Raise NoRoom unless one more replica than so many may run here: each has a port."""
        if count >= self._count_max:
            raise NoRoom(f"no room: {count} of {self._count_max} replicas run on this host")

    def _holders(self) -> dict[int, str]:
        """Return the replica that each GPU is given to."""
        return {
            index: replica.replica_id
            for replica in self._replicas()
            if replica.devices and not replica.is_gone
            for index in replica.devices
        }


def choose_gpus(
    needs: ReplicaNeeds, report: GpuReport, free_before: Collection[int], holders: Mapping[int, str]
) -> tuple[int, ...]:
    """Return the indexes of GPUs for a replica: free at two looks, given to nobody, of one model.

    Raises NoRoom with what stands in the way, and StartRefused where the host could never do.
    """
    matching = [gpu for gpu in report.gpus if gpu.is_a(needs.gpu_kind)]
    _require_possible(needs, report, matching)
    free = [
        gpu
        for gpu in matching
        if not gpu.obstacle and gpu.index in free_before and gpu.index not in holders
    ]
    by_model: dict[str, list[Gpu]] = {}
    for gpu in free:
        by_model.setdefault(gpu.name, []).append(gpu)
    for gpus in by_model.values():
        if len(gpus) >= needs.gpu_count and gpus[0].memory_bytes >= needs.gpu_bytes:
            return tuple(gpu.index for gpu in gpus[: needs.gpu_count])
    in_the_way = [report.problem] if report.problem else [
        f"GPU {gpu.index}: {_obstacle(gpu, holders)}" for gpu in matching if gpu not in free
    ]  # fmt: skip
    details = f" ({'; '.join(in_the_way)})" if in_the_way else ""
    raise NoRoom(f"no room: needs {needs}, {len(free)} free{details}")


def _require_possible(needs: ReplicaNeeds, report: GpuReport, matching: list[Gpu]) -> None:
    """Raise StartRefused for more or larger GPUs than the host has, as far as they can be read."""
    unread = [gpu for gpu in report.gpus if not gpu.memory_bytes]
    if report.problem or unread:
        return
    if len(matching) < needs.gpu_count:
        models = Counter(gpu.name for gpu in report.gpus)
        found = ", ".join(f"{count} × {name}" for name, count in models.items())
        raise StartRefused(
            f"needs {needs}, and this host has {found or 'no GPU'}: change accelerator,"
            " tensor_parallel_size or pipeline_parallel_size of the variant"
        )
    largest = max(gpu.memory_bytes for gpu in matching)
    if needs.gpu_bytes > largest:
        raise StartRefused(
            f"needs {needs.gpu_bytes / GIB:.1f} GiB on each of {needs}, which have"
            f" {largest / GIB:.1f}: raise tensor_parallel_size or lower context_tokens of the"
            " variant"
        )


def _obstacle(gpu: Gpu, holders: Mapping[int, str]) -> str:
    holder = holders.get(gpu.index)
    return f"given to replica {holder}" if holder else gpu.obstacle or "not free long enough yet"
