"""What the load is sent to: the engine itself, or something that stands before it."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.benchmarks.process import Child


@dataclass(frozen=True)
class Target:
    """A name for the tables, where it listens, and the process to watch (None: the engine)."""

    name: str
    base_url: str
    api_key: str = ""
    child: Child | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and port that it listens on."""
        parts = urlsplit(self.base_url)
        return str(parts.hostname), int(parts.port or 80)

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU time its process has used, 0 where none is watched."""
        return self.child.cpu_seconds if self.child else 0.0

    @property
    def memory_bytes(self) -> int:
        """Return the resident memory of its process, 0 where none is watched."""
        return self.child.memory_bytes if self.child else 0
