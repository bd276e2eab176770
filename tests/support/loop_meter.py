"""How long the event loop is held: the CPU time of each callback that asyncio runs.

CPU time rather than the clock's, so that a busy machine does not blame the code.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Longest:
    """The callback that held the loop for longest; seconds."""

    seconds: float = 0.0
    callback: str = ""

    def note(self, seconds: float, callback: Any) -> None:
        """Keep it if it is the longest so far."""
        if seconds > self.seconds:
            self.seconds, self.callback = seconds, repr(callback)[:400]


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
