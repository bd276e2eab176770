"""What gateways tell each other of prompts, through a real Redis that may go away."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio.client import PubSub

from serving.gateway import prefix_sync
from serving.gateway.prefix_sync import (
    BACKLOG_SILENT_SECONDS,
    BLOCKS_AT_ONCE,
    CHANNEL,
    PrefixSync,
    PrefixUpdate,
    RemotePrefillBacklog,
    SentPrompt,
    newest_in_turns,
)
from serving.pool.pool import Pool
from serving.pool.prefix_history import BLOCKS_MAX, PromptPrefix
from tests.fixtures import catalog
from tests.fixtures.redis_server import RedisServer, running_redis
from tests.fixtures.waiting import eventually

REPLICA = "rep_1"
BLOCKS = (1, 2**64 - 1, 3)
PREFIX = PromptPrefix("org_a", BLOCKS)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path) as server:
        yield server


def pool() -> Pool:
    made = Pool("dep", on_prompt=lambda *_: None)
    made.set_replicas({REPLICA: catalog.replica("http://r1", 1)})
    return made


@asynccontextmanager
async def gateway(
    redis: RedisServer, name: str, before: Pool | None = None
) -> AsyncIterator[tuple[PrefixSync, Callable[[PromptPrefix], int]]]:
    """Run one; what is returned with it tells how much of a prompt it knows of the replica."""
    of = before or pool()
    news = PrefixSync(redis.url, name, lambda: {"dep": of})
    task = asyncio.create_task(news.run())
    try:
        yield news, of.replicas[REPLICA].prefix_history.count
    finally:
        task.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(task, return_exceptions=True)
        await news.close()


async def listen(redis: RedisServer, count: int) -> None:
    await eventually(lambda: redis.client.pubsub_numsub(CHANNEL)[0][1] == count)


async def test_what_one_sends_the_other_knows_and_nobody_hears_of_itself(
    redis: RedisServer,
) -> None:
    async with gateway(redis, "a") as (told, own), gateway(redis, "b") as (heard, known):
        await listen(redis, 2)
        for unreadable in (b"", b"\x92\xa1\xff"):  # nothing, and a string that is no UTF-8
            redis.client.publish(CHANNEL, unreadable)
        told.enqueue(REPLICA, PREFIX)
        told.enqueue("rep_unknown", PREFIX)
        await eventually(lambda: known(PREFIX) == len(BLOCKS))
        assert (told.sent, told.received, heard.received, own(PREFIX)) == (2, 0, 1, 0)


async def test_what_is_still_to_be_read_is_told_until_it_is_read_or_who_gave_it_is_gone(
    redis: RedisServer,
) -> None:
    pools = {name: pool() for name in "abc"}
    a, b, c = (one.replicas[REPLICA] for one in pools.values())
    async with gateway(redis, "c", pools["c"]), gateway(redis, "b", pools["b"]):
        async with gateway(redis, "a", pools["a"]):
            await listen(redis, 3)
            a.prefill_backlog, b.prefill_backlog = 5, 7
            await eventually(lambda: (a.remote_prefill_backlog, b.remote_prefill_backlog) == (7, 5))
            await eventually(lambda: c.remote_prefill_backlog == 12)
            b.prefill_backlog = 0
            await eventually(
                lambda: a.remote_prefill_backlog == 0 and c.remote_prefill_backlog == 5
            )
        await eventually(lambda: c.remote_prefill_backlog == 0)


def test_who_says_nothing_any_more_is_forgotten() -> None:
    now, replicas = [100.0], pool().replicas
    elsewhere = RemotePrefillBacklog(lambda: now[0])
    elsewhere.record("a", {REPLICA: 3, "rep_unknown": 9}, replicas)
    now[0] += BACKLOG_SILENT_SECONDS
    elsewhere.record("b", {REPLICA: 4}, replicas)
    elsewhere.forget_silent(replicas)
    assert replicas[REPLICA].remote_prefill_backlog == 7
    now[0] += BACKLOG_SILENT_SECONDS / 2
    elsewhere.forget_silent(replicas)
    assert replicas[REPLICA].remote_prefill_backlog == 4


async def test_it_goes_on_after_redis_was_away(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_sync, "AWAY_SECONDS", 0.05)
    async with gateway(redis, "a") as (told, _), gateway(redis, "b") as (_, known):
        await listen(redis, 2)
        redis.stop()
        told.enqueue(REPLICA, PREFIX)
        await eventually(lambda: told.dropped == 1)
        redis.start()
        await listen(redis, 2)
        told.enqueue(REPLICA, PREFIX)
        await eventually(lambda: known(PREFIX) == len(BLOCKS))


async def test_a_redis_that_hangs_holds_nobody(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_sync, "CALL_SECONDS", 0.2)
    monkeypatch.setattr(prefix_sync, "AWAY_SECONDS", 0.05)
    async with gateway(redis, "a") as (told, _):
        await listen(redis, 1)
        redis.freeze()
        told.enqueue(REPLICA, PREFIX)
        await eventually(lambda: told.dropped == 1)
    redis.thaw()


async def test_who_does_not_hear_itself_listens_anew(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_sync, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(prefix_sync, "AWAY_SECONDS", 0.05)

    def listeners() -> set[str]:
        return {one["id"] for one in redis.client.client_list(_type="pubsub")}

    async with gateway(redis, "a") as (news, _):
        await listen(redis, 1)
        before = listeners()

        def listens_anew() -> bool:
            if len(now := listeners()) == 1 and now != before:
                return True
            news.sent += 1  # As if its connection had died without a word.
            return False

        await eventually(listens_anew, every_seconds=0.5)


async def test_what_is_told_before_redis_says_that_we_are_heard_is_no_silence(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe, times = PubSub.subscribe, [0]

    async def tell_meanwhile(self: PubSub, *channels: str) -> None:
        times[0] += 1
        await subscribe(self, *channels)
        redis.freeze()
        asyncio.get_running_loop().call_later(0.1, tell)

    def tell() -> None:
        news.sent += 1
        redis.thaw()

    monkeypatch.setattr(prefix_sync, "CALL_SECONDS", 60.0)
    monkeypatch.setattr(PubSub, "subscribe", tell_meanwhile)
    async with gateway(redis, "a") as (news, _):
        await eventually(lambda: news.sent == 1)
        await listen(redis, 1)
        await asyncio.sleep(0.1)
        assert times == [1]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"not news",
        msgspec.msgpack.encode(["b", [[REPLICA, "org_a", b"seven.."]]]),
        msgspec.msgpack.encode(["b", [[REPLICA, "org_a", bytes(8 * (BLOCKS_MAX + 1))]]]),
        msgspec.msgpack.encode(["b", "none"]),
        msgspec.msgpack.encode(["b", [], {REPLICA: -1}]),
    ],
)
async def test_what_is_no_news_changes_nothing(redis: RedisServer, message: bytes) -> None:
    async with gateway(redis, "a") as (news, known):
        await listen(redis, 1)
        redis.client.publish(CHANNEL, message)
        prompt = SentPrompt(REPLICA, "org_a", (7).to_bytes(8, "little"))
        redis.client.publish(CHANNEL, msgspec.msgpack.encode(PrefixUpdate("b", [prompt])))
        await eventually(lambda: known(PromptPrefix("org_a", (7,))) == 1)
        assert news.received == 1


def large_prompts(tenant_id: str, numbers: range) -> list[PromptPrefix]:
    starts = [number * BLOCKS_MAX for number in numbers]
    return [PromptPrefix(tenant_id, tuple(range(one, one + BLOCKS_MAX))) for one in starts]


async def test_of_too_much_a_neighbours_prompts_and_what_came_last_are_told(
    redis: RedisServer,
) -> None:
    most = BLOCKS_AT_ONCE // BLOCKS_MAX
    flood, others = large_prompts("flood", range(3, 3 * most)), large_prompts("neighbour", range(3))
    async with gateway(redis, "a") as (told, _), gateway(redis, "b") as (heard, known):
        await listen(redis, 2)
        for prompt in (others[0], *flood[:most], others[1], *flood[most:], others[2]):
            told.enqueue(REPLICA, prompt)
        await eventually(lambda: heard.received == most)
        assert [known(prompt) for prompt in others] == [BLOCKS_MAX] * len(others)
        is_known = [known(prompt) > 0 for prompt in flood]
        left = most - len(others)
        assert is_known == [False] * (len(flood) - left) + [True] * left
        assert told.dropped == len(flood) - left


PROMPT_BLOCKS_MAX = 6
SENT = st.builds(
    SentPrompt,
    st.just(REPLICA),
    st.sampled_from("abc"),
    st.integers(0, PROMPT_BLOCKS_MAX).map(lambda blocks: bytes(8 * blocks)),
)


@given(st.lists(SENT, max_size=40), st.integers(0, 60))
def test_tenants_are_told_of_by_as_many_blocks_or_by_all_of_theirs(
    prompts: list[SentPrompt], blocks_max: int
) -> None:
    kept = newest_in_turns(prompts, blocks_max)
    told = Counter[str]()
    for prompt in kept:
        told[prompt.tenant_id] += len(prompt.blocks) // 8
    assert told.total() <= blocks_max
    for tenant_id in {prompt.tenant_id for prompt in prompts}:
        own = [prompt for prompt in prompts if prompt.tenant_id == tenant_id]
        own_kept = [prompt for prompt in kept if prompt.tenant_id == tenant_id]
        assert own_kept == own[len(own) - len(own_kept) :], "the newest"
        if len(own_kept) < len(own):
            assert told.total() + len(own[-1 - len(own_kept)].blocks) // 8 > blocks_max
            assert max(told.values(), default=0) <= told[tenant_id] + 2 * PROMPT_BLOCKS_MAX


async def test_where_no_redis_was_named_nobody_is_told() -> None:
    news = PrefixSync(None, "a", dict)
    news.enqueue(REPLICA, PREFIX)
    async with asyncio.timeout(60):
        await news.run()
    await news.close()
    assert (news.sent, news.dropped) == (0, 0)
