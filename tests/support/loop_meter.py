"""How long the event loop is held: the CPU time of each callback that asyncio runs.

CPU time rather than the clock's, so that a busy machine does not blame the code.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

KEPT = 3


@dataclass
class Longest:
    """The callbacks that held the loop for longest, the longest first; seconds."""

    held: list[tuple[float, str]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The longest of all."""
        return self.held[0][0] if self.held else 0.0

    @property
    def repeated_seconds(self) -> float:
        """How long it was held three times over: what a machine steals once is not the code's."""
        return self.held[-1][0] if len(self.held) == KEPT else 0.0

    def note(self, seconds: float, callback: Any) -> None:
        """Keep it if it is among the longest so far."""
        if len(self.held) < KEPT or seconds > self.held[-1][0]:
            self.held = sorted([*self.held, (seconds, repr(callback)[:400])], reverse=True)[:KEPT]


@contextmanager
def metered_loop(*, but_this_task: bool = True) -> Iterator[Longest]:
    """Measure every callback of asyncio's loops, but those of the task that measures."""
    longest = Longest()
    left_out = asyncio.current_task() if but_this_task else None
    original = asyncio.Handle._run

    def run(handle: asyncio.Handle) -> None:
        callback = getattr(handle, "_callback", None)
        began = time.thread_time()
        original(handle)
        if left_out is None or getattr(callback, "__self__", None) is not left_out:
            longest.note(time.thread_time() - began, callback)

    asyncio.Handle._run = run  # type: ignore[method-assign]
    try:
        yield longest
    finally:
        asyncio.Handle._run = original  # type: ignore[method-assign]
