"""Whether the node of a replica still listens, as seen from here: connections to its address."""

import asyncio
import socket
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

INTERVAL_SECONDS = 0.25
ANSWER_SECONDS = 0.5
FAILURES = 3
"""In a row, until a node counts as silent: one lost packet costs an attempt."""
STALL_SECONDS = 2 * INTERVAL_SECONDS
"""What is tried while this process stood still says nothing of others."""


@dataclass(slots=True)
class NodeWatch:
    """What is known of one node's address; times are monotonic seconds."""

    url: str
    failures: int = 0
    failing_since: float = 0.0
    is_refused: bool = False
    """Whether its host said at the last attempt that nobody listens."""
    attempts: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def is_silent(self) -> bool:
        """Whether several attempts in a row failed."""
        return self.failures >= FAILURES

    def attempt(self, answer_seconds: float = ANSWER_SECONDS) -> None:
        """Try once more, beside those that still wait."""
        task = asyncio.get_running_loop().create_task(self._attempt(answer_seconds))
        self.attempts.add(task)
        task.add_done_callback(self.attempts.discard)

    def forget_attempts(self) -> None:
        """Take no attempt for a failure that waits now."""
        for task in self.attempts:
            task.cancel()

    async def _attempt(self, answer_seconds: float) -> None:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(answer_seconds):
                await _connect(self.url)
        except ConnectionRefusedError:
            self._failed(begun, is_refused=True)
        except (OSError, TimeoutError):
            self._failed(begun, is_refused=False)
        else:
            self.failures = 0
            self.is_refused = False

    def _failed(self, begun: float, *, is_refused: bool) -> None:
        self.failing_since = begun if self.failures == 0 else min(self.failing_since, begun)
        self.failures += 1
        self.is_refused = is_refused


async def _connect(url: str) -> None:
    """Open a connection and close it. Raises OSError."""
    address = urlsplit(url)
    host, port = str(address.hostname), address.port
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as tried:
        tried.setblocking(False)
        await asyncio.get_running_loop().sock_connect(tried, (host, port))
