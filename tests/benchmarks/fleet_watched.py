"""`python -m serving.fleet` beside a clock that ticks every millisecond, from SIGUSR1 on until the
next one: then it says as one line of JSON when its loop was held, and for how long."""

import asyncio
import signal
import sys
import time
from typing import TextIO

import msgspec
import uvloop

from serving import telemetry
from serving.fleet.__main__ import run
from serving.fleet.config import FleetConfig, read_config

TICK_SECONDS = 0.001


class LoopHold(msgspec.Struct):
    """The loop did nothing else until `ended_at` (monotonic seconds): `seconds` by the clock, and
    `cpu_seconds` of its thread."""

    ended_at: float
    seconds: float
    cpu_seconds: float


class Watch:
    """Notes each time that the loop was held for longer than a tick."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._holds: list[LoopHold] = []
        self._at = 0.0, 0.0
        self._next: asyncio.TimerHandle | None = None

    def switch(self) -> None:
        """Begin to watch, or say what was seen."""
        if self._next is None:
            self._at = time.monotonic(), time.thread_time()
            self._wait()
            return
        self._next.cancel()
        self._next = None
        self._out.write(msgspec.json.encode(self._holds).decode() + "\n")
        self._out.flush()
        self._holds.clear()

    def _wait(self) -> None:
        self._next = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        now, cpu = time.monotonic(), time.thread_time()
        late = now - self._at[0] - TICK_SECONDS
        if late > TICK_SECONDS / 2:
            self._holds.append(LoopHold(now, late, cpu - self._at[1]))
        self._at = now, cpu
        self._wait()


async def watched(config: FleetConfig) -> None:
    """Run the fleet until it is told to end."""
    watch = Watch(sys.stdout)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, watch.switch)
    await run(config)


if __name__ == "__main__":
    settings = read_config()
    telemetry.configure(settings.log_format)
    uvloop.run(watched(settings))
