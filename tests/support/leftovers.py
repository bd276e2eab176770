"""Processes that a test session started and did not end."""

import os
import time

import psutil

from infra.local.environment import RUN_VARIABLE
from tests.support.environment import SESSION, stack_folder_prefix

GRACE_SECONDS = 5.0


def leftover_processes() -> list[psutil.Process]:
    """Return what still runs of this session, after a moment for what is just ending."""
    deadline = time.monotonic() + GRACE_SECONDS
    while (found := _find()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _find() -> list[psutil.Process]:
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [
        process for process in psutil.process_iter() if process.pid not in own and _is_ours(process)
    ]


def _is_ours(process: psutil.Process) -> bool:
    try:
        environ, cwd = process.environ(), process.cwd()
        runs = process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False
    of_session = environ.get(SESSION) == os.environ[SESSION]
    # An engine passes on the run's mark and not the session's; Redis keeps neither.
    folders = (environ.get(RUN_VARIABLE, ""), cwd)
    of_stack = any(folder.startswith(stack_folder_prefix()) for folder in folders)
    return runs and (of_session or of_stack)
