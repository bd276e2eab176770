"""Gateways tell each other which replica they sent which prompt's blocks, and how many are still to
be read, by Redis's publish and subscribe, so that a conversation finds its replica whichever
gateway it comes through, and none is sent more than it can read.

Digests alone travel, which begin with an organization's secret salt, and whose they are. What is
lost, or told while Redis is away, costs a prompt that is read again, and nothing else.
"""

import asyncio
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from heapq import heappop, heappush
from typing import Annotated

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from serving.contract.codec import NOT_JSON
from serving.pool.pool import Pool
from serving.pool.prefix_history import BLOCKS_MAX, PromptPrefix
from serving.pool.replicas import Replica
from serving.redis_client import AWAY, open_redis

BACKLOG_SILENT_SECONDS = 1.0
"""After which a gateway's word counts no more: it may have ended."""

PrefillBacklog = Mapping[str, int]
"""Blocks, by replica."""


class RemotePrefillBacklog:
    """The last word of each gateway, counted at the replicas. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[str, tuple[float, PrefillBacklog]] = {}

    def record(
        self, gateway_id: str, backlog: PrefillBacklog, replicas: Mapping[str, Replica]
    ) -> None:
        """A gateway said what it has under way."""
        before = self._of.pop(gateway_id, (0.0, {}))[1]
        if backlog:
            self._of[gateway_id] = self._clock(), backlog
        self._count({*before, *backlog}, replicas)

    def forget_silent(self, replicas: Mapping[str, Replica]) -> None:
        """Leave out gateways of which nothing was heard for a while."""
        heard_since = self._clock() - BACKLOG_SILENT_SECONDS
        for gateway_id in [id_ for id_, (at, _) in self._of.items() if at < heard_since]:
            self.record(gateway_id, {}, replicas)

    def _count(self, replica_ids: Iterable[str], replicas: Mapping[str, Replica]) -> None:
        for replica_id in replica_ids:
            if (replica := replicas.get(replica_id)) is not None:
                every = (unread.get(replica_id, 0) for _, unread in self._of.values())
                replica.remote_prefill_backlog = sum(every)


CHANNEL = "penstock:prefixes:2"
TELL_SECONDS = 0.1
"""A conversation's next turn takes longer to come than it takes to tell of the last."""
BLOCKS_AT_ONCE = 8_192
"""Of a message; others take them in within two milliseconds. Of more, tenants are told of in turns,
so that nobody's prompts keep other gateways busy."""
CALL_SECONDS = 1.0
AWAY_SECONDS = 2.0
SILENT_SECONDS = 10.0
"""Who told something and heard nothing, not even that, is not heard: the connection is dead."""
WORD = 8
"""Bytes of a block."""


class SentPrompt(msgspec.Struct, array_like=True, frozen=True):
    """A replica, and the blocks of a tenant's prompt that it was sent, each of 8 bytes."""

    replica_id: str
    tenant_id: str
    blocks: bytes


class PrefixUpdate(msgspec.Struct, array_like=True):
    """What a gateway tells at a time."""

    gateway_id: str
    prompts: list[SentPrompt]
    prefill_backlog: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}
    """Blocks of prompts without a first token, by replica."""


class PrefixSync:
    """`pools` are those whose replicas are told of; `enqueue` costs a request next to nothing.
    Without a Redis nobody is told."""

    def __init__(
        self, url: str | None, gateway_id: str, pools: Callable[[], Mapping[str, Pool]]
    ) -> None:
        self.sent = 0
        self.received = 0
        self.dropped = 0
        """Prompts, of which nobody heard."""
        self._gateway_id = gateway_id
        self._sent_backlog: dict[str, int] = {}
        self._remote_backlog = RemotePrefillBacklog(time.monotonic)
        self._pools = pools
        self._waiting: list[SentPrompt] = []
        self._blocks = 0
        """Of those that wait."""
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(PrefixUpdate).decode
        self._redis = None if url is None else open_redis(url)

    def enqueue(self, replica_id: str, prefix: PromptPrefix) -> None:
        """Send others a prompt's prefix, soon."""
        if self._redis is None:
            return
        blocks = array("Q", prefix.blocks).tobytes()
        self._waiting.append(SentPrompt(replica_id, prefix.tenant_id, blocks))
        self._blocks += len(prefix.blocks)
        if self._blocks > 2 * BLOCKS_AT_ONCE:
            self._drop_excess()

    async def run(self) -> None:
        """Send and receive, for ever, where there is a Redis."""
        if self._redis is not None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send_all(self._redis))
                tasks.create_task(self._receive_all(self._redis))

    async def close(self) -> None:
        """Let go of Redis."""
        if self._redis is not None:
            with suppress(*AWAY):
                await self._redis.aclose()

    async def _send_all(self, redis: Redis) -> None:
        while _goes_on():
            await asyncio.sleep(TELL_SECONDS)
            replicas = self._replicas()
            self._remote_backlog.forget_silent(replicas)
            unread = {
                id_: one.prefill_backlog for id_, one in replicas.items() if one.prefill_backlog
            }
            prompts = self._take()
            if prompts or unread or self._sent_backlog:
                try:
                    async with asyncio.timeout(CALL_SECONDS):
                        message = self._encode(PrefixUpdate(self._gateway_id, prompts, unread))
                        await redis.publish(CHANNEL, message)
                    self.sent, self._sent_backlog = self.sent + len(prompts), unread
                except AWAY:
                    self.dropped += len(prompts)
                    await asyncio.sleep(AWAY_SECONDS)

    async def _receive_all(self, redis: Redis) -> None:
        while _goes_on():
            try:
                async with redis.pubsub() as channel:
                    await channel.subscribe(CHANNEL)
                    await self._listen(channel)
            except AWAY:
                await asyncio.sleep(AWAY_SECONDS)

    async def _listen(self, channel: PubSub) -> None:
        """Hear all that is told, ourselves included. Raises TimeoutError, or what redis-py does."""
        told = self.sent
        while _goes_on():
            message = await channel.get_message(timeout=SILENT_SECONDS)
            if message is not None:
                if message["type"] == "message":  # else Redis says that we are heard from now on
                    self._apply(message["data"])
                await asyncio.sleep(0)  # What has come already is read without a pause.
            elif self.sent > told:
                raise TimeoutError
            told = self.sent

    def _replicas(self) -> dict[str, Replica]:
        return {id_: one for pool in self._pools().values() for id_, one in pool.replicas.items()}

    def _take(self) -> list[SentPrompt]:
        """Return what is told next."""
        if self._blocks > BLOCKS_AT_ONCE:
            self._drop_excess()
        taken, self._waiting, self._blocks = self._waiting, [], 0
        return taken

    def _drop_excess(self) -> None:
        count, self._waiting = len(self._waiting), newest_in_turns(self._waiting, BLOCKS_AT_ONCE)
        self._blocks = sum([len(prompt.blocks) for prompt in self._waiting]) // WORD
        self.dropped += count - len(self._waiting)

    def _apply(self, message: bytes) -> None:
        """Take in what another gateway told; what cannot be read is another version's."""
        try:
            news = self._decode(message)
        except NOT_JSON:
            return
        if news.gateway_id == self._gateway_id:
            return
        replicas = self._replicas()
        self._remote_backlog.record(news.gateway_id, news.prefill_backlog, replicas)
        for prompt in news.prompts:
            replica, told = replicas.get(prompt.replica_id), prompt.blocks
            if replica is not None and not len(told) % WORD and len(told) <= BLOCKS_MAX * WORD:
                prefix = PromptPrefix(prompt.tenant_id, tuple(array("Q", told)))
                replica.prefix_history.record(prefix)
                self.received += 1


def newest_in_turns(prompts: Iterable[SentPrompt], blocks_max: int) -> list[SentPrompt]:
    """Return prompts with so many blocks at most, the newest of each tenant: it is always the turn
    of whoever was told of by the fewest blocks."""
    of: dict[str, list[SentPrompt]] = {}
    for prompt in prompts:
        of.setdefault(prompt.tenant_id, []).append(prompt)
    turns, kept, left = [(0, tenant_id) for tenant_id in of], list[SentPrompt](), blocks_max
    while turns:
        told, tenant_id = heappop(turns)
        prompt = of[tenant_id].pop()
        blocks = len(prompt.blocks) // WORD
        if blocks <= left:
            kept.append(prompt)
            left -= blocks
            if of[tenant_id]:
                heappush(turns, (told + blocks, tenant_id))
    return kept[::-1]


def _goes_on() -> bool:
    """Tell whether nobody ended this task: redis-py was seen to swallow that as it gave up."""
    task = asyncio.current_task()
    return task is not None and not task.cancelling()
