"""What a killed session of tests left behind does not stop the next one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.environment import FOLDER_PREFIX
from tests.fixtures.postgres import end_orphans


def folder_of_a_dead_session(parent: Path) -> Path:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    data = parent / f"{FOLDER_PREFIX}{process.pid}" / "data"
    data.mkdir(parents=True)
    return data


@pytest.mark.parametrize("is_somebody_elses", [False, True])
def test_the_note_of_a_server_that_died_with_its_machine_harms_nobody(
    is_somebody_elses: bool, tmp_path: Path
) -> None:
    data = folder_of_a_dead_session(tmp_path)
    with subprocess.Popen(["/bin/sleep", "60"]) as somebody:
        try:
            pid = (
                somebody.pid if is_somebody_elses else data.parent.name.removeprefix(FOLDER_PREFIX)
            )
            (data / "postmaster.pid").write_text(f"{pid}\n{data}\n")
            end_orphans(tmp_path)
            assert not data.parent.exists()
            assert somebody.poll() is None
        finally:
            somebody.kill()


def test_a_server_that_outlived_its_session_is_ended(tmp_path: Path) -> None:
    data = folder_of_a_dead_session(tmp_path)
    # Whoever runs the tests in the background may have made us deaf to what ends a server.
    hearing = "import signal; signal.signal(signal.SIGQUIT, signal.SIG_DFL)"
    waiting = f"{hearing}; import time; print(flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", waiting, str(data)], stdout=subprocess.PIPE
    ) as server:
        assert server.stdout
        server.stdout.readline()
        (data / "postmaster.pid").write_text(f"{server.pid}\n{data}\n")
        end_orphans(tmp_path)
        assert server.poll() is not None
    assert not data.parent.exists()
