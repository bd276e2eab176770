"""The script, in a real Redis: the same rule as in Python to the last bit, and nothing by a wrong
clock or a lost memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.contract.limits import MINUTE
from serving.limits.gcra import admits, believable, settle, step_of, take
from serving.limits.redis_script import RedisCounterStore, RedisUnavailable, ScriptCall, ScriptReply
from tests.fixtures.redis_server import RedisServer

pytestmark = pytest.mark.integration


@pytest.fixture
async def window(server: RedisServer) -> AsyncIterator[RedisCounterStore]:
    window = RedisCounterStore(server.url)
    yield window
    await window.close()


async def judge(
    window: RedisCounterStore, *names: str, by: str = "a", **fields: Any
) -> ScriptReply:
    return await window.decide(names, ScriptCall(by, "life", **fields))


steps = st.floats(0.0, 1.5 * MINUTE)
taken = st.lists(st.tuples(st.integers(2, 4), steps), max_size=4)
deeds = st.lists(st.tuples(st.booleans(), taken), max_size=12)
"""Whether it asks or settles, and of which counts how much."""


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(deeds)
async def test_python_and_the_script_agree_to_the_last_bit(server: RedisServer, doings):
    server.flush()
    window, known = RedisCounterStore(server.url), {}
    for is_ask, wanted in doings:
        if is_ask:
            # A limit is met once by a request.
            once = list(dict(wanted).items())
            reply = await judge(window, "x", "y", "z", asked=[(once, [])])
            now, [told] = reply.now, reply.verdicts
            before = {number: believable(known.get(number, now), now) for number, _ in once}
            fits = all(admits(before[number], now, step) for number, step in once)
            after = [take(before[n], now, step) if fits else before[n] for n, step in once]
            assert (told.is_admitted, list(told.full_ats)) == (fits, after)
            if fits:
                known |= {number: moment for (number, _), moment in zip(once, after, strict=True)}
        else:
            changes = [(number, step - MINUTE / 2) for number, step in wanted]
            now = (await judge(window, "x", "y", "z", settled=changes)).now
            for number, step in changes:
                known[number] = settle(believable(known.get(number, now), now), now, step)
    await window.close()


async def test_all_limits_of_a_request_or_none(window: RedisCounterStore) -> None:
    narrow, wide = step_of(1, 1), step_of(1, 100)
    first = await judge(window, "n", "w", asked=[([(2, narrow), (3, wide)], [])])
    assert first.verdicts[0].is_admitted
    second = await judge(window, "n", "w", asked=[([(2, narrow), (3, wide)], [])])
    assert not second.verdicts[0].is_admitted
    assert second.verdicts[0].full_ats[1] == first.verdicts[0].full_ats[1]


async def test_requests_that_came_together_are_judged_one_after_the_other(window) -> None:
    reply = await judge(window, "n", asked=[([(2, step_of(1, 3))], [])] * 5)
    assert [told.is_admitted for told in reply.verdicts] == [True] * 3 + [False] * 2


async def test_running_requests_of_all_gateways_count_while_they_are_told(window) -> None:
    one = [([], [(2, 3)])]
    assert (await judge(window, "c", running=[(2, 0)], asked=one)).verdicts[0].in_use == (1,)
    told = (await judge(window, "c", by="b", running=[(2, 1)], asked=one * 2)).verdicts
    assert [(each.is_admitted, each.in_use) for each in told] == [(True, (3,)), (False, (3,))]
    await judge(window, "c", by="b", running=[(2, 0)])
    [last] = (await judge(window, "c", running=[(2, 1)], asked=one)).verdicts
    assert (last.is_admitted, last.in_use) == (True, (2,))


async def test_a_gateway_that_says_nothing_more_loses_its_running_requests(
    window: RedisCounterStore, server: RedisServer
) -> None:
    reply = await judge(window, "c", running=[(2, 9)])
    assert server.client.hget("c", "a").split()[0] == b"9"
    # Five seconds later, by the shared clock.
    later = await judge(window, offset=reply.now - reply.raw + 5.1e6)
    assert later.kind == "ok"
    [told] = (await judge(window, "c", by="b", running=[(2, 0)], asked=[([], [(2, 1)])])).verdicts
    assert (told.is_admitted, told.in_use) == (True, (1,))
    assert server.client.hkeys("c") == [b"b"]


async def test_nothing_is_done_by_a_clock_that_the_gateway_knows_wrong(window) -> None:
    now, tolerance = (await judge(window)).now, 60e6  # in which a busy machine comes to it
    for off in (-3600e6, -121e6, 121e6, 3600e6):
        reply = await judge(
            window, "n", expected=now + off, tolerance=tolerance, asked=[([(2, MINUTE)], [])]
        )
        assert (reply.kind, reply.verdicts) == ("clock", ())
    reply = await judge(window, "n", expected=now, tolerance=tolerance, asked=[([(2, MINUTE)], [])])
    assert reply.verdicts[0].is_admitted


async def test_a_lost_memory_is_noticed_and_caught_up(window, server: RedisServer) -> None:
    first = await judge(window, "n", asked=[([(2, MINUTE)], [])])
    server.flush()
    assert (first.life, first.age) == ("life", 0.0)
    lost = await window.decide(
        ["n"], ScriptCall("a", "other", life=first.life, asked=[([(2, 1.0)], [])])
    )
    assert (lost.kind, lost.life) == ("lost", "other")
    await judge(window, "n", known=[(2, first.verdicts[0].full_ats[0])])
    again = await judge(window, "n", life="other", asked=[([(2, MINUTE)], [])])
    assert not again.verdicts[0].is_admitted


async def test_counts_leave_redis_soon_after_they_say_nothing(window, server) -> None:
    await judge(window, "n", "c", running=[(3, 1)], asked=[([(2, MINUTE)], [])])
    assert 100 < server.client.ttl("n") <= 120
    assert 0 < server.client.ttl("c") <= 60


@pytest.mark.parametrize("told", [b"", b"\xc1", b"\x93", b"\x97\x01\xa2ok\xa1\xff"])
async def test_what_is_no_reply_is_no_answer(told: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    window = RedisCounterStore("redis://127.0.0.1:1")

    async def answer(*_: object) -> bytes:
        return told

    monkeypatch.setattr(window, "_script", answer)
    with pytest.raises(RedisUnavailable):
        await judge(window, "x")
    await window.close()


async def test_a_redis_that_breaks_off_keeps_nobody_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = RedisCounterStore("redis://127.0.0.1:1")

    async def fail() -> None:
        raise ConnectionResetError

    monkeypatch.setattr(window._redis, "aclose", fail)
    await window.close()


async def test_it_says_in_words_why_it_is_away(
    window: RedisCounterStore, server: RedisServer
) -> None:
    server.refuse_scripts()
    with pytest.raises(RedisUnavailable, match="NoPermission"):
        await judge(window)
    server.allow_scripts()
    nobody = RedisCounterStore("redis://127.0.0.1:1")
    with pytest.raises(RedisUnavailable, match="Connect"):
        await nobody.open()
    await nobody.close()
