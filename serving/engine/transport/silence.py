"""How long a replica's host may be silent before its connections are given up.

A host without power, or behind a broken network, closes nothing: without these a request waits for
its own deadline, and is tried nowhere else.
"""

import socket
from typing import Protocol

IDLE_SECONDS = 5
PROBE_SECONDS = 2
PROBES = 3
UNHEARD_SECONDS = 10
"""What was sent and not taken in."""


class Line(Protocol):
    """A socket, or what an event loop shows of one."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set an option."""


def bound_silence(line: Line) -> None:
    """Have the kernel give a connection up that nobody acknowledges any more."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, IDLE_SECONDS),
        (socket.TCP_KEEPINTVL, PROBE_SECONDS),
        (socket.TCP_KEEPCNT, PROBES),
        (socket.TCP_USER_TIMEOUT, UNHEARD_SECONDS * 1000),
    ):
        line.setsockopt(socket.IPPROTO_TCP, option, value)
