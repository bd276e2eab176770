"""A replica that answers well and slowly gets no more work."""

import asyncio
from pathlib import Path

import pytest

from serving.pool import replicas
from tests.fixtures.gateway import MESSAGES, running_stack
from tests.fixtures.waiting import eventually

ASK = {"model": "demo", "messages": MESSAGES, "max_tokens": 8, "ignore_eos": True}


async def test_a_replica_far_slower_than_its_peers_is_used_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "SLOW_SECONDS", 300.0)
    async with running_stack(tmp_path, engines=2, itl_seconds=0.002) as stack:
        await stack.start_engine(itl_seconds=0.08)
        pool = stack.gateway.directory.pools["dep_var_demo"]
        await eventually(lambda: sum(one.free > 0 for one in pool.replicas.values()) == 3)
        slow = pool.replicas["rep_3"]

        async def ask() -> None:
            async with stack.post("/v1/chat/completions", ASK) as reply:
                assert reply.status == 200
                await reply.read()

        async def is_out() -> bool:
            await asyncio.gather(*(ask() for _ in range(9)))
            return slow.slow_until > 0.0

        await eventually(is_out)
        made = stack.engines[2].engine.counts["generation_tokens"]
        await asyncio.gather(*(ask() for _ in range(12)))
        assert stack.engines[2].engine.counts["generation_tokens"] == made
        sample = stack.gateway.metrics.registry.get_sample_value
        assert sample("penstock_gateway_replicas_slow", {"deployment": "dep_var_demo"}) == 1
        slow.slow_until = pool.now - 1.0  # its time is over
        stack.engines[2].engine.settings = stack.engines[0].engine.settings

        async def is_back() -> bool:
            await asyncio.gather(*(ask() for _ in range(3)))
            return not slow.slow_until

        await eventually(is_back)
        assert stack.engines[2].engine.counts["generation_tokens"] == made + 8
