"""The GPUs of this host as NVML shows them, and which of them could be given to a replica now.

Only whole GPUs are given. They are named by their index in the order of PCI addresses, which CUDA
counts in too once CUDA_DEVICE_ORDER says so; vLLM does not start on UUIDs. NVML blocks for
milliseconds, on a broken card for seconds: call `read_gpus` in a thread.
"""

import importlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from serving.engine.adapter import GIB

IDLE_BYTES_MAX = 256 * 1024**2
"""What may be in use on a GPU that nobody uses, beside what the driver reserves: less than the
context of any CUDA process."""
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"


class Gpu(msgspec.Struct, frozen=True):
    """One GPU. `memory_bytes` is all that it has, and `obstacle` says why it can be given to nobody
    now; empty if nothing stands in the way."""

    index: int
    name: str
    memory_bytes: int = 0
    obstacle: str = ""

    def is_a(self, kind: str) -> bool:
        """Return whether the words of a kind, such as "H100", are in its name. "GPU" is any."""
        words = _words(kind)
        return words == {"gpu"} or words <= _words(self.name)


class GpuReport(msgspec.Struct, frozen=True):
    """All GPUs of the host, by index; `problem` says why none can be seen."""

    gpus: tuple[Gpu, ...] = ()
    problem: str = ""

    @property
    def free(self) -> frozenset[int]:
        """The indexes of those that nothing stands in the way of."""
        return frozenset(gpu.index for gpu in self.gpus if not gpu.obstacle)


def device_environment(indexes: Iterable[int]) -> dict[str, str]:
    """Return what shows a process these GPUs and no others; without any it sees none."""
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        VISIBLE_VARIABLE: ",".join(map(str, sorted(indexes))),
    }


def read_gpus(nvml: Any = None, environ: Mapping[str, str] = os.environ) -> GpuReport:
    """Return the GPUs of the host; those that CUDA_VISIBLE_DEVICES keeps from us cannot be given.

    `nvml` is the module `pynvml`, or what answers as it does. A host without a driver has none.
    """
    try:
        nvml = nvml or importlib.import_module("pynvml")
        visible = _visible(environ)
        nvml.nvmlInit()
    except ImportError:
        return GpuReport(problem="nvidia-ml-py is not installed")
    except ValueError as error:
        return GpuReport(problem=str(error))
    except nvml.NVMLError as error:
        return GpuReport(problem=f"NVML: {error}")
    try:
        return GpuReport(tuple(_gpus(nvml, visible)))
    except nvml.NVMLError as error:
        return GpuReport(problem=f"NVML: {error}")
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _visible(environ: Mapping[str, str]) -> frozenset[int] | None:
    """Return the indexes that our own environment allows, None for all. Raises ValueError."""
    said = environ.get(VISIBLE_VARIABLE)
    if said is None:
        return None
    try:
        return frozenset(int(each) for each in said.split(",") if each.strip())
    except ValueError:
        words = f"{VISIBLE_VARIABLE} is {said!r}; name GPUs by their index, such as 0,1"
        raise ValueError(words) from None


class _Card(NamedTuple):
    address: str
    handle: Any
    problem: str = ""


def _gpus(nvml: Any, visible: frozenset[int] | None) -> Iterable[Gpu]:
    found = (_card(nvml, number) for number in range(nvml.nvmlDeviceGetCount()))
    cards = sorted(found, key=lambda card: card.address)
    lost = next((card.problem for card in cards if card.problem), "")
    for index, card in enumerate(cards):
        if lost:
            # CUDA may count the others without it: no index is certain.
            yield Gpu(index, "GPU", obstacle=f"a GPU of this host is lost ({lost}); restart it")
            continue
        gpu = _gpu(nvml, index, card.handle)
        if visible is not None and index not in visible and not gpu.obstacle:
            words = f"kept from the fleet by {VISIBLE_VARIABLE}"
            gpu = msgspec.structs.replace(gpu, obstacle=words)
        yield gpu


def _card(nvml: Any, number: int) -> _Card:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        address = nvml.nvmlDeviceGetPciInfo(handle).busId
    except nvml.NVMLError as error:
        return _Card("", None, str(error))
    return _Card(address.decode() if isinstance(address, bytes) else address, handle)


def _gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    name, total = "GPU", 0
    try:
        name = nvml.nvmlDeviceGetName(handle)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        total = int(memory.total)
        obstacle = (
            _mig(nvml, index, handle)
            or _broken_memory(nvml, index, handle)
            or _use(nvml, handle, int(memory.used))
        )
    except nvml.NVMLError as error:
        what = "cannot be read" if total else "memory cannot be read"
        obstacle = f"{what}: {error}"
    return Gpu(index, name, total, obstacle)


def _mig(nvml: Any, index: int, handle: Any) -> str:
    modes = _supported(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if modes is None or nvml.NVML_DEVICE_MIG_ENABLE not in modes:
        return ""
    return f"MIG is on, and only whole GPUs are given; turn it off: nvidia-smi -i {index} -mig 0"


def _broken_memory(nvml: Any, index: int, handle: Any) -> str:
    kind = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    count = _supported(nvml, nvml.nvmlDeviceGetTotalEccErrors, handle, *kind)
    if not count:
        return ""
    return f"{count} memory errors that ECC could not correct; reset it: nvidia-smi -i {index} -r"


def _use(nvml: Any, handle: Any, used_bytes: int) -> str:
    """Return who uses a GPU. The memory decides where NVML cannot list processes."""
    processes = _supported(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
    users = ", ".join(_process(nvml, process.pid) for process in processes)
    if not users and used_bytes <= IDLE_BYTES_MAX:
        return ""
    by = users or "a process that NVML does not show"
    return f"{used_bytes / GIB:.1f} GiB in use by {by}"


def _process(nvml: Any, pid: int) -> str:
    try:
        name = nvml.nvmlSystemGetProcessName(pid)
    except nvml.NVMLError:
        return f"process {pid}"
    return f"process {pid} ({name.rpartition('/')[2]})"


def _supported(nvml: Any, call: Any, *arguments: Any) -> Any:
    """Return what a call says, None where the card knows nothing of it."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
            raise
        return None


def _words(text: str) -> set[str]:
    return set(text.casefold().replace("-", " ").split())


class RecordingNvml:
    """`pynvml`, with what each call said kept in `calls` as JSON values, by its name and arguments;
    an error is kept by its code. A GPU's handle is its number."""

    def __init__(self, nvml: Any) -> None:
        self.calls: dict[str, dict[str, Any]] = {}
        self._nvml = nvml
        self._handles: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._nvml, name)
        if not name.startswith("nvml") or not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            key = f"{name}({', '.join(map(self._plain, arguments))})"
            try:
                value = found(*arguments, **options)
            except self._nvml.NVMLError as error:
                self.calls[key] = {"error": error.value}
                raise
            is_handle = name == "nvmlDeviceGetHandleByIndex"
            if is_handle:
                self._handles.append(value)
            self.calls[key] = {"value": None if is_handle else _plain(value)}
            return value

        return call

    def _plain(self, argument: Any) -> str:
        if isinstance(argument, int):
            return str(argument)
        return next(str(number) for number, one in enumerate(self._handles) if one is argument)


def record(nvml: Any = None) -> dict[str, Any]:
    """Return what NVML says on this machine at one look, as the tests replay it."""
    recording = RecordingNvml(nvml or importlib.import_module("pynvml"))
    report = read_gpus(recording, environ={})
    return {
        "source": "Recorded on a machine.",
        "looks": [recording.calls],
        "report": msgspec.to_builtins(report),
    }


def _plain(value: Any) -> Any:
    """Return a struct of NVML as its fields."""
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return [_plain(each) for each in value]
    fields = [name for name, *_ in getattr(value, "_fields_", ())]
    names = fields or list(getattr(value, "__dict__", ()))
    return {name: _plain(getattr(value, name)) for name in names}
