"""The fleet's files, each replaced whole, one after the other, by a thread: no loop waits."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

Done = TypeVar("Done")


class Disk:
    """What is put into it is done in that order."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk")

    def put(self, write: Callable[[], Done]) -> Future[Done]:
        """Have a file written; what comes of it is told by the future."""
        return self._thread.submit(write)

    def close(self) -> None:
        """Wait for what was put, and take no more."""
        self._thread.shutdown()


def replace_file(path: Path, data: bytes) -> None:
    """Write a file whole and durably: a crash leaves the old one or the new one."""
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
