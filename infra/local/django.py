"""Django's management commands, and other modules that need Django, run with the environment of a
local run."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from infra.local.config import ROOT, StartFailed

ERROR = re.compile(r"(?:CommandError|: error): ")
"""The words that Django's commands and argparse write before an error for the person at the
terminal."""
DJANGO = (sys.executable, "-m", "control.manage")


def scheduler_arguments(schedule: Path | None = None) -> tuple[str, ...]:
    """Return the module and arguments of the scheduler. Without a file it forgets what ran: every
    task is one that may run twice."""
    remembered = ("--scheduler", "celery.beat:Scheduler")
    if schedule is not None:
        remembered = ("--schedule", str(schedule))
    return (
        *("celery", "--app", "control", "beat", "--loglevel", "warning"),
        *(*remembered, "--pidfile", ""),
    )


def django_command(name: str) -> list[str]:
    """Return the command line of a management command."""
    return [*DJANGO, name]


def run_django(environment: Mapping[str, str], *arguments: str) -> str:
    """Run a management command to its end and return its output. Raises StartFailed as
    `run_module` does."""
    return run_module(environment, "control.manage", *arguments)


def run_module(environment: Mapping[str, str], module: str, *arguments: str) -> str:
    """Run a module to its end and return its output.

    Raises StartFailed with its error message, or the last lines of a crash.
    """
    command = [sys.executable, "-m", module, *arguments]
    result = subprocess.run(
        command, env=dict(environment), cwd=ROOT, capture_output=True, text=True, check=False
    )
    if result.returncode:
        text = (result.stderr or result.stdout).strip()
        *_, message = ERROR.split(text)
        if message != text:
            raise StartFailed(message)
        last = text.splitlines()[-8:]
        raise StartFailed("\n".join((f"{module} {arguments[0]} failed:", *last)))
    return result.stdout


def exec_django(environment: Mapping[str, str], arguments: list[str]) -> NoReturn:
    """Replace this process by a management command."""
    os.execve(sys.executable, [*DJANGO, *arguments], dict(environment))
