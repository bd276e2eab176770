"""Calls of Ray that never block the fleet: the process that makes them, its answers, its end."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from serving.contract.codec import NOT_JSON, encode
from serving.fleet.local_launcher import engine_environment
from serving.fleet.ray_agent import Call, Reply

log = structlog.get_logger(__name__)

AGENT = (sys.executable, "-m", "serving.fleet.ray_agent")
CONNECT_SECONDS = 30.0
LINE_BYTES_MAX = 256 * 1024**2
"""Of an answer, which holds what engines have logged."""


class RayUnreachable(Exception):
    """Ray did not answer; nobody knows what came of a call."""


class RayClient:
    """One agent at a time. An agent that leaves a call unanswered is killed; the next call starts
    another, which connects anew."""

    def __init__(self, fleet_id: str) -> None:
        self._fleet_id = fleet_id
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pending: dict[int, asyncio.Future[Reply]] = {}
        self._number = 0
        self.connections = 0
        """How many agents have connected so far."""

    async def call(self, verb: str, timeout_seconds: float, **fields: Any) -> Reply:
        """Have the agent do something. Raises RayUnreachable."""
        process = await self._connected()
        self._number += 1
        number = self._number
        answer = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_seconds):
                process.stdin.write(encode(Call(number, verb, **fields)) + b"\n")  # type: ignore[union-attr]
                return await answer
        except TimeoutError as error:
            self._kill(process)
            raise RayUnreachable(f"no answer within {timeout_seconds:.0f} s") from error
        finally:
            self._pending.pop(number, None)

    async def close(self) -> None:
        """End the agent; what it started lives on."""
        if self._process is not None:
            self._kill(self._process)
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _connected(self) -> Process:
        async with self._turn:
            if self._process is None:
                self._process = await self._connect()
            return self._process

    async def _connect(self) -> Process:
        """Start an agent, and return it once it has connected. Raises RayUnreachable."""
        ray = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
        process = await asyncio.create_subprocess_exec(
            *(*AGENT, self._fleet_id),
            stdin=PIPE,
            stdout=PIPE,
            limit=LINE_BYTES_MAX,
            env={**engine_environment(os.environ), **ray},
        )
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                is_connected = bool(await process.stdout.readline())  # type: ignore[union-attr]
        except BaseException as error:
            await _end(process)
            if isinstance(error, TimeoutError):
                raise RayUnreachable(f"no connection within {CONNECT_SECONDS:.0f} s") from error
            raise
        if not is_connected:
            await _end(process)
            raise RayUnreachable("no connection: the log says why")
        self.connections += 1
        self._reader = asyncio.get_running_loop().create_task(self._read(process))
        return process

    async def _read(self, process: Process) -> None:
        """Hand out answers until the agent ends."""
        with suppress(ValueError, *NOT_JSON):
            while line := await process.stdout.readline():  # type: ignore[union-attr]
                reply = msgspec.json.decode(line, type=Reply)
                waiting = self._pending.get(reply.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
        self._kill(process)
        await process.wait()

    def _kill(self, process: Process) -> None:
        """Kill an agent; all calls that wait for it end."""
        with suppress(ProcessLookupError):
            process.kill()
        if process is self._process:
            self._process = None
            for waiting in self._pending.values():
                if not waiting.done():
                    waiting.set_exception(RayUnreachable("the connection ended"))


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
