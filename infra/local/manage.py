"""Django's management commands, run with the environment of a local run."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import NoReturn

from infra.local.config import ROOT
from infra.local.errors import StartFailed

COMMAND_ERROR = "CommandError: "
"""How Django begins an error that is meant for the person at the terminal."""
MANAGE = (sys.executable, "-m", "control.manage")


def manage_command(name: str) -> list[str]:
    """Return the command line of a management command."""
    return [*MANAGE, name]


def run_manage(environment: Mapping[str, str], *arguments: str) -> str:
    """Run a command to its end and return its output.

    Raises StartFailed with its error message, or the last lines of a crash.
    """
    command = [*MANAGE, *arguments]
    result = subprocess.run(
        command, env=dict(environment), cwd=ROOT, capture_output=True, text=True, check=False
    )
    if result.returncode:
        text = (result.stderr or result.stdout).strip()
        _, is_told, message = text.rpartition(COMMAND_ERROR)
        if is_told:
            raise StartFailed(message)
        words = text.splitlines()
        raise StartFailed("\n".join((f"penstock manage {arguments[0]} failed:", *words[-8:])))
    return result.stdout


def become_manage(environment: Mapping[str, str], arguments: list[str]) -> NoReturn:
    """Replace this process by a management command."""
    os.execve(sys.executable, [*MANAGE, *arguments], dict(environment))
