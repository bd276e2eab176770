"""What processes with Django tell the benchmark, which has none."""

from dataclasses import dataclass, field


@dataclass
class Fed:
    """What one process took in, and when each batch was done; the CPU time of it and of its
    PostgreSQL backend, from a batch's bytes to its receipt's."""

    accepted: int = 0
    duplicates: int = 0
    seconds: float = 0.0
    python_seconds: float = 0.0
    backend_seconds: float = 0.0
    done_at: list[float] = field(default_factory=list)


@dataclass
class Followed:
    """How far the followers were behind at most, and how long they took to the end afterwards."""

    lag_max_seconds: float = 0.0
    catch_up_seconds: float = 0.0


@dataclass
class Polled:
    """What each poll took, in how many statements, and what came of all of them."""

    milliseconds: list[float] = field(default_factory=list)
    statements: list[int] = field(default_factory=list)
    granted: int = 0
    deferred: int = 0
    returned: int = 0


@dataclass
class Seen:
    """One page: what each visit took, what it asked of the database, and its compressed size."""

    name: str
    milliseconds: list[float]
    queries: int
    compressed_bytes: int


@dataclass
class Exported:
    """One file: its lines, what it took, when its first bytes came, and the memory it added."""

    lines: int
    seconds: float
    first_seconds: float
    added_bytes: int
