"""GPUs as NVML shows them, by files in its own structs and error codes, and which may be given."""

import json
from pathlib import Path

import msgspec
import pynvml
import pytest

from serving.fleet.devices import Gpu, GpuReport, device_environment, read_gpus, record
from tests.fixtures.nvml_replay import FOLDER, ReplayedNvml, looks

H100 = "NVIDIA H100 80GB HBM3"
OBSTACLES = {
    "two_free": ["", ""],
    "busy": ["43.0 GiB in use by process 4711 (python3)", ""],
    "process_without_name": ["2.0 GiB in use by process 4711"],
    "processes_not_supported": ["", "9.0 GiB in use by a process that NVML does not show"],
    "memory_not_supported": ["memory cannot be read: Not Supported"],
    "mig_on": [
        "MIG is on, and only whole GPUs are given; turn it off: nvidia-smi -i 0 -mig 0",
        "",
    ],
    "ecc_errors": [
        "2 memory errors that ECC could not correct; reset it: nvidia-smi -i 0 -r",
        "",
    ],
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_stands_in_the_way_of_a_gpu_is_said(name: str) -> None:
    [nvml] = looks(name)
    report = read_gpus(nvml, environ={})
    assert [gpu.obstacle for gpu in report.gpus] == OBSTACLES[name]
    assert report.problem == ""


def test_a_host_without_a_driver_has_no_gpu_and_says_why() -> None:
    [nvml] = looks("no_driver")
    problem = "NVML: NVML Shared Library Not Found"
    assert read_gpus(nvml, environ={}) == GpuReport(problem=problem)


def test_gpus_are_counted_by_their_pci_address_as_cuda_counts_them() -> None:
    [nvml] = looks("enumerated_backwards")
    assert [gpu.name for gpu in read_gpus(nvml, environ={}).gpus] == [H100, "NVIDIA L4"]


def test_a_lost_card_makes_every_index_uncertain() -> None:
    before, after = (read_gpus(nvml, environ={}) for nvml in looks("vanishes"))
    assert before.free == {0, 1}
    assert after.free == set()
    assert "GPU is lost" in after.gpus[0].obstacle


def test_a_fleet_gives_no_gpu_that_its_own_environment_hides() -> None:
    [nvml] = looks("two_free")
    assert read_gpus(nvml, environ={"CUDA_VISIBLE_DEVICES": "1"}).free == {1}
    assert read_gpus(nvml, environ={"CUDA_VISIBLE_DEVICES": ""}).free == set()
    by_uuid = read_gpus(nvml, environ={"CUDA_VISIBLE_DEVICES": "GPU-8932f937"})
    assert by_uuid.free == set()
    assert "by their index" in by_uuid.problem


@pytest.mark.parametrize(
    ("kind", "is_one"),
    [
        ("H100", True), ("h100 80gb", True), ("GPU", True), ("NVIDIA H100", True),
        ("H200", False), ("H100 40GB", False), ("100", False),
    ],
)  # fmt: skip
def test_a_kind_is_words_of_the_name(kind: str, is_one: bool) -> None:
    assert Gpu(0, H100).is_a(kind) == is_one


def test_an_engine_sees_its_gpus_alone() -> None:
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert device_environment((3, 1)) == {**order, "CUDA_VISIBLE_DEVICES": "1,3"}
    assert device_environment(()) == {**order, "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_file_says_where_it_comes_from_and_recording_it_again_tells_the_same(path: Path) -> None:
    document = json.loads(path.read_text())
    written = "Written from NVML's manual; not recorded on a machine."
    assert document["source"] == ("Recorded on a machine." if "report" in document else written)
    for nvml in looks(path.stem):
        recorded = json.loads(json.dumps(record(nvml)))
        again = read_gpus(ReplayedNvml(recorded["looks"][0]), environ={})
        assert msgspec.convert(recorded["report"], GpuReport) == again
        assert again == read_gpus(nvml, environ={})


def test_this_machines_own_nvml_is_read_or_its_absence_is_said() -> None:
    report = read_gpus(environ={})
    assert bool(report.gpus) != bool(report.problem)
    if report.problem:
        with pytest.raises(pynvml.NVMLError):
            pynvml.nvmlInit()
