"""How far a run of seeds is, said while it lasts: for whoever waits, never part of the result."""

import time
from collections.abc import Callable
from typing import TextIO

EVERY_SECONDS = 5.0
AT_A_TERMINAL_SECONDS = 0.5


class Progress:
    """Tells how many seeds are done: on one line that is written over at a terminal, else on lines
    of their own."""

    def __init__(
        self, count: int, out: TextIO, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.done = 0
        self._count, self._out, self._clock = count, out, clock
        self._is_over_written = out.isatty()
        self._pause = AT_A_TERMINAL_SECONDS if self._is_over_written else EVERY_SECONDS
        self._began = self._said = clock()

    @property
    def seconds_each(self) -> float:
        """What a seed has taken so far."""
        return (self._clock() - self._began) / max(self.done, 1)

    def begin(self) -> None:
        """Say that the database is there, and let the time of seeds begin."""
        self._began = self._clock()
        self.say(f"0 of {self._count:,} seeds")

    def step(self) -> None:
        """Count a clean seed, and say so if nothing was said for a while."""
        self.done += 1
        if self._clock() - self._said >= self._pause:
            each = self.seconds_each
            left = _duration(each * (self._count - self.done))
            clean = f"{self.done:,} of {self._count:,} seeds clean"
            self.say(f"{clean}, {each:.2f} s each, {left} left")

    def end(self) -> None:
        """Leave the line to what is printed next."""
        if self._is_over_written:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def say(self, words: str) -> None:
        """Say something in place of how many seeds are done."""
        self._said = self._clock()
        self._out.write(f"\r\x1b[K{words}" if self._is_over_written else f"{words}\n")
        self._out.flush()


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
