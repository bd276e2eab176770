"""Parts that the commands of `penstock` share: exit statuses, the environment they run in, and a
clear error if the extra that holds their packages is not installed."""

import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from typing import Literal, NoReturn

import typer

from infra.local.config import OWNER_VARIABLE, LocalError, read_config
from infra.local.django import exec_django
from infra.local.state_dir import StateDirectory

EXIT_FAILED = 1
EXIT_NOT_RUNNING = 3
EXIT_BUG = 70  # EX_SOFTWARE
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of a command that hands its arguments to the program behind it."""
PASS_HELP = {**PASS_THROUGH, "help_option_names": []}
"""The same, with `--help`."""
Extra = Literal["gateway", "control", "local"]
EXTRA_PACKAGES: dict[Extra, str] = {"gateway": "aiohttp", "control": "django", "local": "circus"}
"""Each optional set of packages, and a package that comes with it."""


def command_group(words: str, name: str | None = None) -> typer.Typer:
    """Return an empty group of commands that prints its help when called alone."""
    return typer.Typer(
        name=name,
        help=words,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=False,
    )


def require_extra(extra: Extra) -> None:
    """Raise LocalError if the packages of an extra are not installed."""
    if importlib.util.find_spec(EXTRA_PACKAGES[extra]) is None:
        raise LocalError(
            f"packages are missing; install them with: pip install 'penstock[{extra}]'"
        )


def read_environment() -> dict[str, str]:
    """Return the environment of a service: the variables as they are, completed from the state
    directory if it exists. The database owner's address is left out."""
    config = read_config(os.environ)
    home = StateDirectory(config.home)
    local: dict[str, str] = {}
    if home.exists:
        require_extra("local")
        from infra.local.processes import RUN_VARIABLE, build_environment

        local = build_environment(config, home, os.environ)
        local.pop(RUN_VARIABLE, None)  # not a part of the run: `penstock down` leaves it alone
    environment = {**local, **os.environ}
    environment.pop(OWNER_VARIABLE, None)
    return environment


def owner_environment() -> dict[str, str]:
    """Return the same with the database owner's address, for migrations and archives."""
    config = read_config(os.environ)
    home = StateDirectory(config.home)
    if not home.exists:
        return dict(os.environ)
    environment = read_environment()
    from infra.local.processes import owner_environment as with_owner

    return with_owner(config, home, environment)


def become(extra: Extra, module: str, *arguments: str) -> NoReturn:
    """Replace this process by a service. Raises LocalError if its packages are missing."""
    require_extra(extra)
    command = [sys.executable, "-m", module, *arguments]
    os.execve(command[0], command, read_environment())


def run_management_command(arguments: Sequence[str], *, as_owner: bool = False) -> NoReturn:
    """Replace this process by a management command of the control plane. Raises LocalError if its
    packages are missing."""
    require_extra("control")
    environment = owner_environment() if as_owner else read_environment()
    exec_django(environment, list(arguments))


def interrupt_on_signals() -> None:
    """Let SIGTERM and a closed terminal end the command as Ctrl-C does."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
