"""Has the kernel give up connections whose other end fell silent."""

import socket
from typing import Protocol

KEEPALIVE_IDLE_SECONDS = 5
KEEPALIVE_PROBE_SECONDS = 2
KEEPALIVE_PROBES = 3
UNACKNOWLEDGED_SECONDS = 10
"""For the peer to take in what was sent."""


class SocketOptions(Protocol):
    """A socket, or what an event loop shows of one."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set an option."""


def bound_silence(
    line: SocketOptions, unacknowledged_seconds: int = UNACKNOWLEDGED_SECONDS
) -> None:
    """Have the kernel give a connection up that nobody acknowledges any more."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS),
        (socket.TCP_KEEPINTVL, KEEPALIVE_PROBE_SECONDS),
        (socket.TCP_KEEPCNT, KEEPALIVE_PROBES),
        (socket.TCP_USER_TIMEOUT, unacknowledged_seconds * 1000),
    ):
        line.setsockopt(socket.IPPROTO_TCP, option, value)
