"""One line a step on the terminal: its name, what came of it, how long it took."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import typer

NAME_CHARACTERS = 16


class ProgressStep:
    """A step under way; `say` tells how far it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome = "done"
        self._started = time.monotonic()
        self._said = ""

    @property
    def seconds(self) -> float:
        """The time that the step has taken so far."""
        return time.monotonic() - self._started

    def say(self, news: str) -> None:
        """Tell how far the step is; the same news twice is told once."""
        if news != self._said:
            self._said = news
            typer.echo(f"  {self.name:<{NAME_CHARACTERS}} {news:<28} {self.seconds:5.1f} s")


@contextmanager
def step(name: str, outcome: str = "ready") -> Iterator[ProgressStep]:
    """Time a step; its line is written when it is over."""
    current = ProgressStep(name)
    current.outcome = outcome
    if sys.stdout.isatty():
        typer.echo(f"  {name:<{NAME_CHARACTERS}} …\r", nl=False)
    try:
        yield current
    except BaseException:
        current.outcome = "failed"
        raise
    finally:
        colour = typer.colors.RED if current.outcome == "failed" else typer.colors.GREEN
        shown = typer.style(f"{current.outcome:<9}", fg=colour)
        typer.echo(f"  {name:<{NAME_CHARACTERS}} {shown} {current.seconds:5.1f} s")
