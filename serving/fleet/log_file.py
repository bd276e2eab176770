"""A replica's log: kept within a size, and read for how loading goes and why it ended."""

import re
from collections.abc import Callable
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

BYTES_MAX = 8 * 1024 * 1024
"""A log may grow to this; then all but its end is thrown away. The one before is kept once."""

TAIL_BYTES = 64 * 1024
_ERROR = re.compile(r"((?:\b[A-Za-z_.]*(?:Error|Exception)|\berror): .+)$")


class LogFile:
    """Reads what an engine appends to `path`; the engine holds the file open by itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new_lines(self) -> list[str]:
        """Return the lines since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()

    def trim(self) -> None:
        """Move a log that grew too long aside, in place: its writer appends and goes on."""
        try:
            if self.path.stat().st_size <= BYTES_MAX:
                return
            data = self.path.read_bytes()[-BYTES_MAX:]
        except FileNotFoundError:
            return
        try:
            self.path.with_suffix(".log.1").write_bytes(data)
        except OSError as error:
            # On a full disk room is worth more than what an engine said before.
            log.error("engine_log_not_kept", file=self.path.name, error=str(error))
        with self.path.open("r+b") as file:
            file.truncate(0)
        self._offset = 0

    def remove(self) -> None:
        """Delete the log and the one before."""
        self.path.unlink(missing_ok=True)
        self.path.with_suffix(".log.1").unlink(missing_ok=True)

    def last_error(self) -> str:
        """Return the last error an engine wrote, in one line; empty if it wrote none."""
        try:
            text = self.path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
        except FileNotFoundError:
            return ""
        found = [match[1] for line in text.splitlines() if (match := _ERROR.search(line))]
        return found[-1][:300] if found else ""


def last_stage(lines: list[str], stage_of: Callable[[str], str | None]) -> str | None:
    """Return the latest stage of loading that these lines begin."""
    return next((stage for line in reversed(lines) if (stage := stage_of(line))), None)
