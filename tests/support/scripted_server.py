"""A TCP server that answers each request with bytes it was given, cut where it was told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Script = Callable[[int, int], list[bytes | None]]
"""From the number of a connection and of its request to what is written; None closes it."""


@dataclass
class ScriptedServer:
    """What was asked of it, by connection."""

    script: Script
    port: int = 0
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    connections: int = 0
    closed: int = 0
    said: int = 0
    """How many requests were answered to the last byte."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer every request of one connection."""
        number, self.connections = self.connections, self.connections + 1
        try:
            turn = 0
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                self.requests.append((number, head + await reader.readexactly(length)))
                try:
                    for piece in self.script(number, turn):
                        if piece is None:
                            return
                        writer.write(piece)
                        await writer.drain()
                        await asyncio.sleep(0)
                finally:
                    self.said, turn = self.said + 1, turn + 1
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.closed += 1
            writer.close()


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[ScriptedServer]:
    """Serve on a free port."""
    server = ScriptedServer(script)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
