"""What an engine itself says it made: vLLM's counters, which the mock engine speaks too."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread

from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.process import fetch
from tests.benchmarks.target import Target

TELL_SECONDS = 20.0
TOKENS = "vllm:generation_tokens_total"


def counter(engine_url: str, name: str) -> float:
    """Return the sum of a counter over its labels, 0 when the engine has none of that name.

    Raises BenchmarkFailed when the engine is too busy to tell.
    """
    try:
        lines = fetch(f"{engine_url}/metrics", seconds=TELL_SECONDS).decode().splitlines()
    except OSError as error:
        raise BenchmarkFailed(f"the engine's counters cannot be read: {error}") from error
    found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found)


@dataclass
class Window:
    """Measures between two moments of a run that is longer than both: tokens a second by the
    engine's counter, and the CPU time that `target` took for them.

    The start and the end of a closed loop are left out: streams cut off when the load stops would
    otherwise count for nothing.
    """

    engine_url: str
    target: Target
    skip_seconds: float
    seconds: float
    wait: Callable[[float], None] = time.sleep
    tokens_per_second: float = 0.0
    cpu_share: float = 0.0

    def __call__(self) -> None:
        """Wait, read, wait, read again."""
        time.sleep(self.skip_seconds)
        first, cpu_first, began = self._read()
        self.wait(self.seconds)
        last, cpu_last, ended = self._read()
        self.tokens_per_second = (last - first) / (ended - began)
        self.cpu_share = (cpu_last - cpu_first) / (ended - began)

    def _read(self) -> tuple[float, float, float]:
        return counter(self.engine_url, TOKENS), self.target.cpu_seconds, time.monotonic()


class TokenRate(Thread):
    """Tokens a second by the engine's own counter, from `skip_seconds` after its start to
    `seconds` after it."""

    def __init__(self, engine_url: str, skip_seconds: float, seconds: float) -> None:
        super().__init__()
        self.tokens_per_second = 0.0
        self._engine_url = engine_url
        self._skip_seconds = skip_seconds
        self._seconds = seconds

    def run(self) -> None:
        """Wait, read, wait, read again."""
        time.sleep(self._skip_seconds)
        first, began = counter(self._engine_url, TOKENS), time.monotonic()
        time.sleep(self._seconds - self._skip_seconds)
        made = counter(self._engine_url, TOKENS) - first
        self.tokens_per_second = made / (time.monotonic() - began)
