"""A benchmark that is told to stop stops what it started."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.benchmarks.machine import ANYWHERE
from tests.benchmarks.process import running

pytestmark = pytest.mark.integration

BENCHMARK = """
import sys, time
from pathlib import Path
from tests.benchmarks.machine import ANYWHERE
from tests.benchmarks.process import running, unwind_when_asked

unwind_when_asked()
with running("sleeper", ["sleep", "60"], folder=Path(sys.argv[1]), cores=ANYWHERE, env={}) as child:
    print(child.process.pid, flush=True)
    while True:  # a signal that comes just before a sleep is seen after it
        time.sleep(0.1)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_it_started_ends_with_it(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", BENCHMARK, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as benchmark:
        assert benchmark.stdout is not None
        started = int(benchmark.stdout.readline())
        benchmark.send_signal(number)
        assert benchmark.wait(timeout=10) == 128 + number
    assert not psutil.pid_exists(started)


def test_what_is_measured_belongs_to_no_other_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere")
    monkeypatch.setenv("PENSTOCK_FLEET_URL", "http://elsewhere")
    with running("env", ["env"], folder=tmp_path, cores=ANYWHERE, env={"WANTED": "1"}) as child:
        child.process.wait(10)
    told = child.log.read_text()
    assert "WANTED=1" in told
    assert "elsewhere" not in told
