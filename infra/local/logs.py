"""One readable log of all processes: each line with the name of who wrote it, in its colour."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from infra.local.state_dir import StateDirectory

POLL_SECONDS = 0.25
COLOURS = (
    *(typer.colors.CYAN, typer.colors.GREEN, typer.colors.YELLOW, typer.colors.MAGENTA),
    *(typer.colors.BLUE, typer.colors.BRIGHT_CYAN, typer.colors.BRIGHT_GREEN),
)


@dataclass(slots=True)
class LogTail:
    """Reads the whole lines that a file gained; a file that shrank was begun anew."""

    path: Path
    offset: int = 0

    def new_lines(self) -> list[str]:
        """Return the lines since the last call."""
        if not self.path.exists():
            return []
        if self.path.stat().st_size < self.offset:
            self.offset = 0
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return whole.decode(errors="replace").splitlines()


def log_files(home: StateDirectory, names: list[str]) -> dict[str, Path]:
    """Return the logs of processes and replicas by name, or of those asked for only."""
    found = {path.stem: path for path in sorted(home.logs.glob("*.log"))}
    found |= {path.stem: path for path in sorted((home.data / "fleet").glob("**/*.log"))}
    return {name: path for name, path in found.items() if not names or name in names}


def last_lines(path: Path, count: int) -> list[str]:
    """Return the end of one log."""
    return path.read_text(errors="replace").splitlines()[-count:] if count else []


def follow_logs(home: StateDirectory, names: list[str], *, goes_on: Callable[[], bool]) -> None:
    """Write what the logs gain from now on, while `goes_on` holds."""
    tails = {
        name: LogTail(path, path.stat().st_size) for name, path in log_files(home, names).items()
    }
    colours = itertools.cycle(COLOURS)
    painted = {name: next(colours) for name in tails}
    while goes_on():
        for name, path in log_files(home, names).items():
            if name not in tails:  # a replica that started meanwhile
                tails[name], painted[name] = LogTail(path), next(colours)
        for name, line in _new_lines(tails):
            typer.echo(f"{prefix(name, painted[name])} {line}")
        time.sleep(POLL_SECONDS)


def prefix(name: str, colour: str) -> str:
    """Return the name that stands before a line."""
    return typer.style(f"{name[:12]:<12} |", fg=colour)


def _new_lines(tails: dict[str, LogTail]) -> Iterator[tuple[str, str]]:
    for name, tail in tails.items():
        for line in tail.new_lines():
            yield name, line
