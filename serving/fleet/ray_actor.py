"""What runs on a node of a Ray cluster: an actor that starts the node of one replica and ends with
it. Ray names it; all else of the fleet is on another host."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import msgspec

from serving.contract.codec import NOT_JSON, decode, encode
from serving.contract.node import NodeLaunch, NodeReport
from serving.fleet.devices import device_environment, read_gpus
from serving.fleet.engine_process import REPLICA_VARIABLE, LogFile, ProcessGroup, group_of
from serving.fleet.local_launcher import NODE, engine_environment, in_memory

FOLDER = "penstock-replica-"
"""What the names of actors' folders begin with; their process's id follows."""
LOG_BYTES_MAX = 256 * 1024
"""Of a log that one look takes along."""


class StartOrder(msgspec.Struct, frozen=True):
    """A replica to start: `python` is the fleet's interpreter, which is replaced by the host's own,
    and `penstock` the fleet's version, which must be the host's too."""

    launch: NodeLaunch
    python: str
    penstock: str


class ActorReport(msgspec.Struct, frozen=True):
    """How a replica does on its host; `gpus` are what Ray gave it, and `log` is what its engine has
    written since the last look. `url` is empty until the node listens."""

    is_alive: bool
    url: str = ""
    host: str = ""
    node_pid: int = 0
    engine_pid: int = 0
    gpus: tuple[int, ...] = ()
    cpu_seconds: float = 0.0
    log: bytes = b""


class ReplicaActor:
    """One replica's actor. At its end, however it comes, the kernel closes the lifeline, and the
    node kills its engine."""

    def __init__(self, address: str, gpus: Iterable[int]) -> None:
        self._address = address
        self._gpus = tuple(gpus)
        _remove_ended()
        folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-"))
        self._report_file = folder / "node.json"
        self._log = folder / "engine.log"
        self._read = 0
        self._group: ProcessGroup | None = None
        self._lifeline = -1

    def begin(self, told: bytes) -> str:
        """Start the node of a `StartOrder`; return why not, empty if it was started."""
        order = decode(told, StartOrder)
        if (ours := version("penstock")) != order.penstock:
            return f"the fleet has Penstock {order.penstock}, {self._address} {ours}"
        if obstacles := self._obstacles():
            return f"{self._address}: {obstacles}"
        read_end, self._lifeline = os.pipe()
        launch = order.launch
        environment = engine_environment(os.environ) | {REPLICA_VARIABLE: launch.replica_id}
        # Ray sets it to the CPUs of the bundle; engines choose by themselves.
        environment.pop("OMP_NUM_THREADS", None)
        command = tuple(sys.executable if each == order.python else each for each in launch.command)
        launch = msgspec.structs.replace(
            launch,
            command=command,
            environment={
                **environment,
                **launch.environment,
                **device_environment(self._gpus),
            },
            report_file=str(self._report_file),
            host=self._address,
            address=self._address,
            lifeline=read_end,
        )
        try:
            with self._log.open("ab") as out, in_memory(encode(launch)) as given:
                node = subprocess.Popen(
                    NODE,
                    env=environment,
                    stdin=given,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(read_end,),
                )
        except OSError as error:
            return f"{self._address}: {NODE[0]}: {error}"
        finally:
            os.close(read_end)
        self._group = group_of(node)
        return ""

    def look(self) -> bytes:
        """Return an `ActorReport`."""
        group = self._group
        if group is None:
            return encode(ActorReport(is_alive=True, host=self._address, gpus=self._gpus))
        group.refresh()
        if not (is_alive := group.is_alive):
            group.reap()
        node = self._node_report()
        return encode(
            ActorReport(
                is_alive=is_alive,
                url="" if node is None else node.url,
                host=self._address,
                node_pid=0 if node is None else node.node_pid,
                engine_pid=0 if node is None else node.engine_pid,
                gpus=self._gpus,
                cpu_seconds=group.cpu_seconds,
                log=self._new_log(),
            )
        )

    def finish(self) -> None:
        """Ask the node to have its engine finish and end."""
        if self._group is not None:
            self._group.terminate()

    def _obstacles(self) -> str:
        """Return what stands in the way on the GPUs that Ray gave us, which it does not look at."""
        if not self._gpus:
            return ""
        found = [gpu for gpu in read_gpus().gpus if gpu.index in self._gpus and gpu.obstacle]
        return "; ".join(f"GPU {gpu.index}: {gpu.obstacle}" for gpu in found)

    def _node_report(self) -> NodeReport | None:
        try:
            return msgspec.json.decode(self._report_file.read_bytes(), type=NodeReport)
        except (OSError, *NOT_JSON):
            return None

    def _new_log(self) -> bytes:
        with self._log.open("rb") as file:
            if self._read > self._log.stat().st_size:
                self._read = 0
            file.seek(self._read)
            data = file.read(LOG_BYTES_MAX)
        self._read += len(data)
        if not data:
            LogFile(self._log).trim()
        return data


def _remove_ended() -> None:
    """Remove the folders of actors that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        pid = folder.name.removeprefix(FOLDER).partition("-")[0]
        if not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


class ActorOnRay(ReplicaActor):
    """The actor as Ray makes it: it learns its address and GPUs from Ray."""

    def __init__(self) -> None:
        import ray

        gpus = (int(each) for each in ray.get_gpu_ids())
        super().__init__(ray.util.get_node_ip_address(), gpus)
