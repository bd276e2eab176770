"""Clients that speak HTTP as they like: slowly, in pieces, too much of it."""

import asyncio
import json
import socket
from typing import Any
from urllib.parse import urlsplit


class RawClient:
    """One connection to a gateway; `receive_bytes` bounds what its kernel takes ahead of it."""

    def __init__(self, url: str, receive_bytes: int | None = None) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname, parts.port
        self._receive_bytes = receive_bytes
        self.socket = socket.socket()

    async def __aenter__(self) -> "RawClient":
        if self._receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
        self.socket.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(self.socket, self._address)
        except BaseException:
            self.socket.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.socket.close()

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read(self, size: int = 65_536, seconds: float = 10.0) -> bytes:
        """Return what came, nothing at the end."""
        async with asyncio.timeout(seconds):
            return await asyncio.get_running_loop().sock_recv(self.socket, size)

    async def read_all(self, seconds: float = 10.0) -> bytes:
        """Return everything until the other side closes."""
        parts = []
        async with asyncio.timeout(seconds):
            while data := await self.read(seconds=seconds):
                parts.append(data)
        return b"".join(parts)


def request(path: str, secret: str, body: Any, extra: bytes = b"") -> bytes:
    """Return a request as bytes."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n"
    )
    return head.encode() + extra + b"\r\n" + data
