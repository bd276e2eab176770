"""A file is one process's, and what is wrong with a disk is not another process."""

import errno
import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serving.file_lock import FileLock, FileLocked

TAKE = """
import sys
from pathlib import Path
from serving.file_lock import FileLock, FileLocked
try:
    FileLock(Path(sys.argv[1]))
except FileLocked as error:
    print(error)
"""


def taken_by_another(path: Path) -> str:
    command = [sys.executable, "-c", TAKE, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_one_process_holds_it_until_it_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock(path)
    assert taken_by_another(path) == f"{path} is locked by another process"
    lock.close()
    assert taken_by_another(path) == ""


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        (errno.EAGAIN, FileLocked),
        (errno.EACCES, FileLocked),
        (errno.ENOLCK, OSError),
        (errno.EIO, OSError),
    ],
)
def test_only_another_process_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, wanted: type[Exception]
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, "so it is")

    monkeypatch.setattr(fcntl, "lockf", fail)
    with pytest.raises(wanted):
        FileLock(tmp_path / "lock", seconds=0.06)


def test_a_folder_that_is_not_there_is_no_other_process(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "none" / "lock")
