"""vLLM's processes ask for the processor's tiles: without, attention on CPUs ends with SIGILL."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from serving.engine.vllm_plugin import ask_for_tiles

ASK = """
import ctypes
from serving.engine.vllm_plugin import ask_for_tiles
GET_PERMISSION = 0x1022
answered, permitted = ask_for_tiles(), ctypes.c_uint64()
ctypes.CDLL(None).syscall(158, GET_PERMISSION, ctypes.byref(permitted))
print(answered, bool(permitted.value >> 18 & 1))
"""


@pytest.mark.unit
def test_each_process_of_vllm_loads_it():
    assert entry_points(group="vllm.general_plugins")["penstock_tiles"].load() is ask_for_tiles


@pytest.mark.unit
def test_a_process_has_tiles_where_the_processor_has():
    has_tiles = "amx_tile" in Path("/proc/cpuinfo").read_text()
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == [str(has_tiles)] * 2
