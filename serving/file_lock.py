"""A file that one process holds at a time. The kernel lets go of it when the process ends, however
it ends, and no child inherits it."""

import fcntl
import os
import time
from pathlib import Path

LOOK_SECONDS = 0.05


class FileLocked(Exception):
    """Another process holds the file."""


class FileLock:
    """Held from its making to `close`. Raises FileLocked when others hold it for `seconds`, and
    OSError where no file can be held there: on a full disk, in a folder that is not ours, on some
    NFS."""

    def __init__(self, path: Path, seconds: float = 0.0) -> None:
        deadline = time.monotonic() + seconds
        self._path = path
        self._file = path.open("ab")
        try:
            while not self._is_taken():
                if time.monotonic() >= deadline:
                    raise FileLocked(f"{path} is locked by another process")
                time.sleep(LOOK_SECONDS)
        except BaseException:
            self._file.close()
            raise

    def is_held(self) -> bool:
        """Whether the file that is locked is the one at `path`: another process may lock a file
        that was put in its place."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except OSError:
            return False

    def close(self) -> None:
        """Let go."""
        self._file.close()

    def _is_taken(self) -> bool:
        """Try to take it. Others hold it where that fails with EAGAIN or EACCES, nobody else."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True
