"""What one command measures with."""

from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.machine import Split


@dataclass(frozen=True)
class Plan:
    """`folder` takes logs and journals and goes away with the run."""

    folder: Path
    split: Split
    rounds: int
    with_peers: bool
    weights: Path
