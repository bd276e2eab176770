"""The messages between a process and the one that started it: one pickled object each, and bytes.

Both ends are this program, and the socket between them is theirs alone. The bytes go as they are,
piece by piece: copying megabytes at once would hold the loop.
"""

import asyncio
import pickle
import socket
import struct
import sys
from collections.abc import Sequence
from subprocess import Popen
from typing import Any

import structlog

log = structlog.get_logger(__name__)


_LENGTHS = struct.Struct(">QQ")
HEAD_BYTES = _LENGTHS.size


def pack(message: Any, payload_bytes: int) -> bytes:
    """Return a message, its length and the payload's before it."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTHS.pack(len(data), payload_bytes) + data


def lengths(head: bytes) -> tuple[int, int]:
    """Return how long the message after its head is, and the payload after that."""
    message_bytes, payload_bytes = _LENGTHS.unpack(head)
    return message_bytes, payload_bytes


def unpack(data: bytes) -> Any:
    """Return the message."""
    return pickle.loads(data)  # noqa: S301 -- from a child of our own


PIECE_BYTES = 128 * 1024
"""At most this is copied at once, or twice that."""
START_SECONDS = 120.0
"""For it to load what it needs, on a busy machine."""


class WorkerDied(Exception):
    """The process ended before it answered, or never began: out of memory, or killed."""


class WorkerProcess:
    """Belongs to one event loop; who was not answered must not ask again, but `kill` it."""

    def __init__(
        self, child: Popen[bytes], source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        self.is_asked = False
        """Whether an answer is owed: until it came, nothing else may be asked."""
        self._child = child
        self._source = source
        self._sink = sink

    @classmethod
    async def start(cls, module: Sequence[str]) -> "WorkerProcess":
        """Start `python -m module arguments…`, which must `serve`. Raises WorkerDied, also where
        the machine has no memory or descriptor for another one."""
        try:
            ours, child = await _connected(module)
        except OSError as error:
            log.error("worker_not_started", module=" ".join(module), error=str(error))
            raise WorkerDied from error
        process = cls(child, *await asyncio.open_connection(sock=ours, limit=PIECE_BYTES))
        try:
            async with asyncio.timeout(START_SECONDS):
                await process._answer()
        except TimeoutError:
            await process.kill()
            raise WorkerDied from None
        except BaseException:
            await process.kill()
            raise
        return process

    @property
    def pid(self) -> int:
        """The operating system's name for it."""
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._child.poll() is None

    async def ask(self, message: Any, payload: Sequence[bytes] = ()) -> tuple[Any, list[bytes]]:
        """Return the answer to a message and the bytes that came with it. Raises WorkerDied."""
        self.is_asked = True
        try:
            self._sink.write(pack(message, sum(map(len, payload))))
            for piece in payload:
                self._sink.write(piece)
                await self._sink.drain()
            await self._sink.drain()
        except ConnectionError as error:
            raise WorkerDied from error
        return await self._answer()

    async def kill(self) -> None:
        """End it at once and see it gone."""
        self._sink.close()
        self._child.kill()
        await asyncio.to_thread(self._child.wait)

    async def _answer(self) -> tuple[Any, list[bytes]]:
        try:
            head = await self._source.readexactly(HEAD_BYTES)
            message_bytes, left = lengths(head)
            message = unpack(await self._source.readexactly(message_bytes))
            payload = []
            while left:
                payload.append(await self._source.readexactly(min(left, PIECE_BYTES)))
                left -= len(payload[-1])
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise WorkerDied from error
        self.is_asked = False
        return message, payload


async def _connected(module: Sequence[str]) -> tuple[socket.socket, Popen[bytes]]:
    """Make a process, and a line to it; of one that nobody waits for any more nothing is left."""
    ours, theirs = socket.socketpair()
    # In a thread: a large process takes many milliseconds to make another.
    command = (sys.executable, "-m", *module)
    opening = asyncio.ensure_future(asyncio.to_thread(_open, command, theirs))
    try:
        return ours, await asyncio.shield(opening)
    except BaseException:
        ours.close()
        opening.add_done_callback(_end)
        raise


def _open(command: Sequence[str], line: socket.socket) -> Popen[bytes]:
    with line:
        return Popen([*command], stdin=line.fileno())


def _end(opening: asyncio.Future[Popen[bytes]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().kill()
        opening.result().wait()
