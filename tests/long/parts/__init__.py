"""The named parts of `make test-long`: each runs by itself, in 15 minutes or less.

`python -m tests.long.parts postgres-15` runs one, `--list` shows all. Each is a module here with a
`Part`, which `__main__` lists. A part may keep what it needs to go on in a folder of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class PartFailed(Exception):
    """A part found a fault or can't run here; the message is one sentence for the terminal."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part: its name, a line for `--list`, and the function that runs it. The function gets a
    folder that stays from run to run, prints its progress, and raises PartFailed."""

    name: str
    summary: str
    run: Callable[[Path], None]
