"""What one command measures with."""

from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.machine import Split


@dataclass(frozen=True)
class Plan:
    """`folder` takes logs, journals and databases and goes away with the run.

    The books are measured for `seconds` under load, and on about `events` events at rest.
    """

    folder: Path
    split: Split
    rounds: int
    with_peers: bool
    weights: Path
    seconds: int
    events: int
