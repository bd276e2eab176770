"""What goes out to one client, so that a slow one holds up nobody, not even its own engine.

As long as the client reads, bytes go straight to it. When it does not, they gather here, and the
engine is read on: what it makes is counted. Too many of them in one stream, or none taken for half
a minute, and the client is cut off.

Streams have half of the memory for all such bytes. An organization may take as much of it as it
leaves to others, times its weight. Where it needs more, the gateway cuts off those of its own
streams that keep most.

An answer that was made whole counts as well until its last piece is written. Where all together are
too much it is not the newcomer that goes, but who takes most slowly.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

from serving.pool.overload import Holder, SharedCapacity

PENDING_BYTES_MAX = 1024 * 1024
ALL_PENDING_BYTES_MAX = 256 * 1024 * 1024
PIECE_BYTES = 64 * 1024
STALL_SECONDS = 30.0
"""Within which a client takes something."""
SLOWEST_BYTES = 16 * 1024
"""A second, in the mean, of a long answer that is there already."""
SLOWEST_END_BYTES = 1024
"""The same, of what a stream has left when it has ended."""


class ResponseLine(Protocol):
    """What the bytes go out on: a `ResponseCycle`."""

    @property
    def is_blocked(self) -> bool: ...
    @property
    def unsent_bytes(self) -> int: ...
    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def abort(self) -> None: ...


class ResponseWriter(Protocol):
    """The way out of a reply's body: `WriteBuffer`, or what is around it."""

    def put(self, data: bytes) -> None: ...
    async def flush(self) -> None: ...
    def abort(self) -> None: ...
    def drop(self) -> None: ...


class ClientTooSlow(Exception):
    """The client takes nothing, or far less than is made for it."""


def seconds_to_take(size: int) -> float:
    """Return how long a client may take for so many bytes."""
    return STALL_SECONDS + size / SLOWEST_BYTES


class BodyTransfer:
    """A whole answer on its way out: all of it is kept until its last piece is written."""

    def __init__(self, size: int, until: asyncio.Timeout) -> None:
        self.size = size
        self.taken = 0
        self._until = until
        self._began_at = asyncio.get_running_loop().time()

    def pace(self, now: float) -> float:
        """Return how fast it is taken: as fast as can be at first, so that nobody is cut for having
        just begun."""
        return (PENDING_BYTES_MAX + self.taken) / max(now - self._began_at, 0.001)

    def abort(self, now: float) -> None:
        """End its time."""
        if not self._until.expired():
            self._until.reschedule(now)


class Anonymous(NamedTuple):
    """The holder of answers to requests without a known key: one organization that never paid."""

    organization_id: str = ""
    weight: int = 1
    is_paying: bool = False


ANONYMOUS = Anonymous()


class WriteMemory:
    """How many bytes wait for slow clients, in the whole process: of streams, and of answers that
    were made whole."""

    def __init__(self, bytes_max: int | None = None) -> None:
        self.bytes_max = ALL_PENDING_BYTES_MAX if bytes_max is None else bytes_max
        self._poured_bytes = 0
        self._pours: dict[BodyTransfer, None] = {}
        self._room = SharedCapacity(self.bytes_max // 2)
        self._streams: defaultdict[str, dict[WriteBuffer, None]] = defaultdict(dict)
        """Those of each organization that keep something."""

    @property
    def total_bytes(self) -> int:
        """Of both kinds."""
        return self._room.held + self._poured_bytes

    @property
    def is_full(self) -> bool:
        """Whether too much waits in all."""
        return self.total_bytes > self.bytes_max

    def keep(self, stream: "WriteBuffer", size: int) -> None:
        """Count bytes that a stream keeps. If its organization has no room for them, cut off those
        of its streams that keep most. Raises ClientTooSlow if this one keeps most."""
        holder = stream.holder
        own = self._streams[holder.organization_id]
        own[stream] = None
        while not self._room.fits(holder, size):
            largest = max(own, key=lambda one: one.kept_bytes)
            if largest is stream:
                raise ClientTooSlow
            largest.abort()
        self._room.add(holder, size)
        if self.is_full:
            self.make_room()

    def forget(self, stream: "WriteBuffer", size: int) -> None:
        """Count so many bytes less of a stream, which is no longer known once it keeps none."""
        name = stream.holder.organization_id
        self._room.add(stream.holder, -size)
        if not stream.kept_bytes:
            self._streams[name].pop(stream, None)
            if not self._streams[name]:
                del self._streams[name]

    @contextmanager
    def pouring(self, size: int, until: asyncio.Timeout) -> Iterator[BodyTransfer]:
        """Count an answer meanwhile; where it makes too much, somebody's time ends at once."""
        pour = BodyTransfer(size, until)
        self._pours[pour] = None
        self._poured_bytes += size
        self.make_room()
        try:
            yield pour
        finally:
            self._leave(pour)

    def make_room(self) -> None:
        """Where too much waits, cut those whole answers that are taken most slowly, as long as they
        have more than half of all: streams have as good a right to it."""
        now = asyncio.get_running_loop().time()
        while self.is_full and self._poured_bytes > self.bytes_max // 2:
            slowest = min(self._pours, key=lambda pour: pour.pace(now))
            self._leave(slowest)
            slowest.abort(now)

    def _leave(self, pour: BodyTransfer) -> None:
        if pour in self._pours:
            del self._pours[pour]
            self._poured_bytes -= pour.size


class WriteBuffer:
    """The body of one answer to `holder`."""

    def __init__(
        self, line: ResponseLine, pending: WriteMemory, holder: Holder = ANONYMOUS
    ) -> None:
        self.holder = holder
        self._line = line
        self._pending = pending
        self._kept = bytearray()
        self._pump: asyncio.Task[None] | None = None

    @property
    def kept_bytes(self) -> int:
        """How much is kept for later."""
        return len(self._kept)

    def put(self, data: bytes) -> None:
        """Send, or keep for later. Raises ClientTooSlow."""
        if self._pump is None and not self._line.is_blocked:
            self._line.write(data)
            return
        if self._pump is not None and self._pump.done():
            if not self._pump.cancelled():
                self._pump.result()
            raise ClientTooSlow
        self._keep(data)
        if self._pump is None:
            self._pump = asyncio.get_running_loop().create_task(self._drain())

    async def pour(self, data: bytes) -> bytes:
        """Send a long end as fast as it is taken, and return its last piece, which is left to do;
        however fast that is, others have their turn in between. Raises ClientTooSlow."""
        left = memoryview(data)
        try:
            async with asyncio.timeout(seconds_to_take(len(data))) as until:
                with self._pending.pouring(len(data), until) as pour:
                    while len(left) > PIECE_BYTES:
                        self._line.write(bytes(left[:PIECE_BYTES]))
                        left = left[PIECE_BYTES:]
                        await self._wait()
                        pour.taken += PIECE_BYTES
                        await asyncio.sleep(0)
        except TimeoutError:
            raise ClientTooSlow from None
        return bytes(left)

    async def flush(self) -> None:
        """Wait until all that was kept has been taken. Raises ClientTooSlow."""
        if self._pump is None and not self._line.is_blocked:
            return
        left = len(self._kept) + self._line.unsent_bytes
        try:
            async with asyncio.timeout(STALL_SECONDS + left / SLOWEST_END_BYTES):
                if self._pump is not None:
                    await self._pump
                    self._pump = None
                await self._wait()
        except TimeoutError:
            raise ClientTooSlow from None

    def abort(self) -> None:
        """Close the connection at once, whatever it still holds."""
        self.drop()
        self._line.abort()

    def drop(self) -> None:
        """Forget what waits."""
        if self._pump is not None and not self._pump.cancel() and not self._pump.cancelled():
            self._pump.exception()  # nobody else asks for it
        self._forget()

    def _keep(self, data: bytes) -> None:
        if len(self._kept) + len(data) > PENDING_BYTES_MAX:
            raise ClientTooSlow
        self._pending.keep(self, len(data))
        self._kept += data

    async def _drain(self) -> None:
        while self._kept:
            data = bytes(self._kept[:PIECE_BYTES])
            del self._kept[:PIECE_BYTES]
            self._pending.forget(self, len(data))
            await self._wait()
            self._line.write(data)
        self._pump = None

    async def _wait(self) -> None:
        """Wait until more may be written. Raises ClientTooSlow when nothing is taken for long."""
        while self._line.is_blocked:
            before_bytes = self._line.unsent_bytes
            with suppress(TimeoutError):
                async with asyncio.timeout(STALL_SECONDS):
                    await self._line.drain()
                    return
            if self._line.unsent_bytes >= before_bytes:
                raise ClientTooSlow

    def _forget(self) -> None:
        size = len(self._kept)
        self._kept.clear()
        self._pending.forget(self, size)
