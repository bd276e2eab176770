"""A file that one process holds at a time. The kernel lets go of it when the process ends, however
it ends, and no child inherits it."""

import fcntl
import time
from pathlib import Path

LOOK_SECONDS = 0.05


class JournalInUse(Exception):
    """Another process uses the journal."""


class Lock:
    """Held from its making to `close`. Raises JournalInUse when others hold it for `seconds`."""

    def __init__(self, path: Path, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._file = path.open("ab")
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() >= deadline:
                    self._file.close()
                    raise JournalInUse(f"{path} is locked by another process") from None
            time.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """Let go."""
        self._file.close()
