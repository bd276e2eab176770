"""A neighbour beside an attacker: what the one sees while the other does its worst.

Gateway and control run in this process, whose loop is metered; the engines, the neighbour and the
attacker are processes of their own.
"""

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.benchmarks.process import free_port
from tests.support import catalog
from tests.support.caller import Called, call
from tests.support.gateway import MESSAGES, Stack, eventually, running_stack
from tests.support.loop_meter import Longest, metered_loop

TTFT_SECONDS = 0.02
CONTEXT_TOKENS = 10**6
DIMENSIONS = 1_024
ASK = {"model": "demo", "messages": MESSAGES, "max_tokens": 1, "stream": True}


@dataclass(frozen=True)
class Seen:
    """What the neighbour saw, what the attacker was told, and what held the loop for longest."""

    neighbour: Called
    attacker: Called | None
    longest: Longest


class Beside:
    """One neighbour, one attacker, and engines of 20 ms to the first token."""

    def __init__(self, stack: Stack, attacker: catalog.Tenant) -> None:
        self._stack = stack
        self._attacker = attacker

    async def alone(self, seconds: float) -> Seen:
        """Let the neighbour ask with nobody beside it."""
        with metered_loop() as longest:
            neighbour = await self._neighbour(seconds)
        return Seen(neighbour, None, longest)

    async def under(self, path: str, body: bytes, seconds: float, connections: int = 3) -> Seen:
        """Let the neighbour ask while the attacker posts a body again and again."""
        file = self._stack.folder / "attack.json"
        file.write_bytes(body)
        secret, url = self._attacker.secret, self._stack.url + path
        with metered_loop() as longest:
            attack = asyncio.create_task(call(url, secret, file, seconds + 1.0, connections))
            await asyncio.sleep(0.5)
            neighbour = await self._neighbour(seconds)
            attacker = await attack
        return Seen(neighbour, attacker, longest)

    async def _neighbour(self, seconds: float) -> Called:
        file = self._stack.folder / "ask.json"
        file.write_text(json.dumps(ASK))
        url = f"{self._stack.url}/v1/chat/completions"
        return await call(url, self._stack.tenant.secret, file, seconds)


@asynccontextmanager
async def beside(folder: Path) -> AsyncIterator[Beside]:
    """Run all of it; the model reads a million tokens, so that no body is too large for it."""
    async with (
        running_stack(folder) as stack,
        _engine("var_demo") as url,
        _engine("var_embed") as embedding_url,
    ):
        attacker = catalog.tenant("attacker")
        catalog.publish(stack.control, attacker)
        model = msgspec.structs.replace(
            catalog.model(), context_tokens=CONTEXT_TOKENS, vocabulary_size=10**6
        )
        stack.control.feed.publish("model", "var_demo", model)
        await stack.offer_embeddings()
        embedder = msgspec.structs.replace(
            catalog.embedder(), dimensions=DIMENSIONS, vocabulary_size=10**6
        )
        stack.control.feed.publish("model", "var_embed", embedder)
        for record in (
            catalog.replica(url, 1, slots=32),
            catalog.replica(embedding_url, 99, "var_embed", slots=32),
        ):
            stack.control.fleet.publish("replica", record.replica_id, record)
        directory = stack.gateway.directory
        await eventually(lambda: directory.mirror.version == stack.control.feed.version)
        pool = directory.pools["dep_var_embed"]
        await eventually(lambda: pool.replicas["rep_99"].record.url == embedding_url)
        with _frozen():
            yield Beside(stack, attacker)


@contextmanager
def _frozen() -> Iterator[None]:
    """Keep what other tests left out of collections, as a gateway does with what it starts with."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@asynccontextmanager
async def _engine(variant_id: str) -> AsyncIterator[str]:
    port = free_port()
    options = ["--served-model-name", variant_id, "--port", str(port)]
    options += ["--dimensions", str(DIMENSIONS)]
    options += ["--itl-seconds", str(TTFT_SECONDS), "--context-tokens", str(4 * CONTEXT_TOKENS)]
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "serving.engine.simulated", *options),
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        while b"listening" not in await child.stdout.readline():
            pass
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        await child.wait()
