"""Where long polls wait for news: one LISTEN connection per event loop rings for all of them."""

import asyncio
from contextlib import suppress
from weakref import WeakKeyDictionary

import psycopg
import structlog

from control.db.connection import connect_apart
from control.publish.services import CHANNEL

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 3
RECONNECT_SECONDS = 1.0


class WaitingRoom:
    """Wakes everybody who waits whenever something is published.

    `ring_count` tells a reader who looked before waiting whether it rang meanwhile.
    """

    def __init__(self) -> None:
        self.ring_count = 0
        self.is_closed = False
        self._bell = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    async def wait(self, ring_count: int, seconds: float) -> None:
        """Return when it rang since `ring_count`, when closing, or after `seconds`."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        if self.ring_count == ring_count and not self.is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._bell.wait()

    def ring(self) -> None:
        """Wake everybody."""
        self.ring_count += 1
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    def close(self) -> None:
        """Wake everybody and let nobody wait again: the process ends."""
        self.is_closed = True
        if self._listening is not None:
            self._listening.cancel()
        self.ring()

    async def _listen(self) -> None:
        """Ring at each notification, for ever. While PostgreSQL is away readers look by
        themselves once a second, so a failure here costs time and loses nothing."""
        while True:
            try:
                await self._ring_for_notifications()
            except psycopg.OperationalError as error:
                log.warning("feed_listener_lost", error=type(error).__name__)
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _ring_for_notifications(self) -> None:
        async with await connect_apart(connect_timeout=CONNECT_SECONDS) as listener:
            await listener.execute(f"LISTEN {CHANNEL}")
            self.ring()  # something may have been published before we listened
            async for _ in listener.notifies():
                self.ring()


_rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, WaitingRoom] = WeakKeyDictionary()


def room() -> WaitingRoom:
    """Return the waiting room of the running event loop."""
    return _rooms.setdefault(asyncio.get_running_loop(), WaitingRoom())
