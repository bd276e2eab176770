"""The simulated engine speaks as vLLM 0.32 was recorded to speak, and fails as told."""

import asyncio
import base64
import json
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.engine.simulated.server import SimulatedServer
from serving.engine.simulated.settings import Fault, SimulatorSettings
from tests.fixtures.waiting import eventually

USAGE = {"include_usage": True, "continuous_usage_stats": True}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hello " * 60}], "max_tokens": 3}


class Client:
    """A few words of HTTP with a running simulated engine."""

    def __init__(self, server: SimulatedServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session
        self.base = f"http://127.0.0.1:{server.port}"

    async def post(self, body: Any, path: str = "/v1/chat/completions") -> Any:
        async with self.session.post(self.base + path, json=body) as answer:
            return await answer.json()

    async def status(self, body: dict[str, Any]) -> int:
        async with self.session.post(self.base + "/v1/chat/completions", json=body) as answer:
            return answer.status

    async def lines(self, body: dict[str, Any], path: str = "/v1/chat/completions") -> list[str]:
        async with self.session.post(self.base + path, json=body | {"stream": True}) as answer:
            assert answer.content_type == "text/event-stream"
            text = (await answer.read()).decode()
        return events(text)

    async def metric(self, name: str) -> float:
        async with self.session.get(self.base + "/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
            return sum(s.value for family in families for s in family.samples if s.name == name)

    async def shows(self, name: str, value: float) -> bool:
        return await self.metric(name) == value

    async def fail(self, **fault: Any) -> None:
        await self.post([fault], "/simulated/faults")


@asynccontextmanager
async def running(faults: list[Fault] | None = None, **settings: Any) -> AsyncIterator[Client]:
    server = SimulatedServer(SimulatorSettings(port=0, **settings), faults)
    await server.start()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
        yield Client(server, session)
    await server.stop()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with running() as started:
        yield started


def shape(value: Any) -> Any:
    """What of an answer must be equal: names and kinds of fields, not what they say."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return type(value).__name__


# One stream each as vLLM 0.32.0 sent it: two tokens, continuous usage.
RECORDED = Path(__file__).parent / "recorded"


def events(text: str) -> list[str]:
    return [part.removeprefix("data: ") for part in text.split("\n\n") if part]


@pytest.mark.parametrize(
    ("path", "body", "file"),
    [
        ("/v1/chat/completions", CHAT, "chat_stream.sse"),
        ("/v1/completions", {"prompt": "hello"}, "completion_stream.sse"),
    ],
)
async def test_streams_have_the_recorded_shape(
    client: Client, path: str, body: dict[str, Any], file: str
) -> None:
    recorded = events((RECORDED / file).read_text())
    lines = await client.lines(body | {"max_tokens": 2, "stream_options": USAGE}, path)
    assert lines.pop() == recorded.pop() == "[DONE]"
    assert [shape(json.loads(line)) for line in lines] == [
        shape(json.loads(line)) for line in recorded
    ]
    assert list(json.loads(lines[0])) == list(json.loads(recorded[0]))


async def test_cached_tokens_are_named_on_the_last_chunk_only(client: Client) -> None:
    body = CHAT | {"stream_options": USAGE, "cache_salt": "a"}
    await client.lines(body)
    chunks = [json.loads(line) for line in (await client.lines(body))[:-1]]
    assert all("prompt_tokens_details" not in chunk["usage"] for chunk in chunks[:-1])
    assert chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64


async def test_usage_is_left_out_unless_asked_for(client: Client) -> None:
    lines = await client.lines(CHAT)
    assert not any("usage" in line for line in lines)
    assert json.loads(lines[-2])["system_fingerprint"]


async def test_a_prefix_is_never_shared_across_salts(client: Client) -> None:
    async def cached(salt: str) -> int:
        answer = await client.post(CHAT | {"cache_salt": salt})
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert await cached("a") == 0
    assert await cached("b") == 0
    assert await cached("a") > 0


async def test_the_same_prompt_and_seed_get_the_same_answer_streamed_or_not(client: Client) -> None:
    body = CHAT | {"seed": 4, "max_tokens": 9}
    whole = (await client.post(body))["choices"][0]["message"]["content"]
    chunks = [json.loads(line) for line in (await client.lines(body))[:-1]]
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == whole
    assert (await client.post(body | {"seed": 5}))["choices"][0]["message"]["content"] != whole


async def test_an_interval_gathers_tokens_but_for_the_first(client: Client) -> None:
    body = CHAT | {"max_tokens": 20, "ignore_eos": True, "stream_options": USAGE}
    lines = await client.lines(body | {"stream_interval": 8})
    chunks = [json.loads(line) for line in lines[:-1]]
    told = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert told == [0, 1, 9, 17, 20, 20]
    said = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks[:-1])
    assert said == (await client.post(body))["choices"][0]["message"]["content"]


async def test_an_answer_ends_by_itself_by_the_limit_or_at_a_stop_string(client: Client) -> None:
    free = await client.post(CHAT | {"max_tokens": 1_000})
    words = free["choices"][0]["message"]["content"]
    assert free["choices"][0]["finish_reason"] == "stop"
    assert (await client.post(CHAT))["choices"][0]["finish_reason"] == "length"
    stop = words.split()[5]
    stopped = await client.post(CHAT | {"max_tokens": 1_000, "stop": [stop]})
    assert stopped["choices"][0]["message"]["content"] == words[: words.index(stop)]
    assert stopped["choices"][0]["stop_reason"] == stop


async def test_n_choices_differ_and_their_tokens_add_up(client: Client) -> None:
    answer = await client.post(CHAT | {"n": 3})
    assert len({choice["message"]["content"] for choice in answer["choices"]}) == 3
    assert answer["usage"]["completion_tokens"] == 9


async def test_the_counters_count_what_usage_says_and_prompts_once_a_choice(client: Client) -> None:
    usage = (await client.post(CHAT | {"n": 2}))["usage"]
    assert await client.metric("vllm:generation_tokens_total") == usage["completion_tokens"]
    assert await client.metric("vllm:prompt_tokens_total") == 2 * usage["prompt_tokens"]
    assert await client.metric("vllm:num_requests_running") == 0


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "nobody"}, 404, "model"),
        ({"max_tokens": 9_000}, 400, "input_tokens"),
        ({"max_tokens": 0}, 400, None),
        ({"messages": []}, 400, None),
    ],
)
async def test_refuses_as_vllm_does(
    client: Client, change: dict[str, Any], status: int, param: str | None
) -> None:
    error = (await client.post(CHAT | change))["error"]
    assert (error["code"], error["param"]) == (status, param)
    assert set(error) == {"message", "type", "param", "code"}


async def test_models_name_the_context(client: Client) -> None:
    async with client.session.get(client.base + "/v1/models") as answer:
        [card] = (await answer.json())["data"]
    assert (card["id"], card["max_model_len"]) == ("simulated", 8_192)


async def test_pacing_takes_the_time_it_models() -> None:
    loop = asyncio.get_running_loop()
    async with running(itl_seconds=0.02, prefill_tokens_per_second=1_000) as client:
        begun = loop.time()
        await client.post(CHAT | {"max_tokens": 10})
        # about 95 prompt tokens at 1,000 a second and 10 tokens at 20 ms
        assert loop.time() - begun > 0.25


async def test_no_more_requests_run_than_there_are_slots() -> None:
    async with running(slots=2) as client:
        await client.fail(kind="freeze")  # so that none ends before it was looked at
        tasks = [asyncio.create_task(client.post(CHAT)) for _ in range(3)]
        await eventually(lambda: client.shows("vllm:num_requests_waiting", 1))
        assert await client.metric("vllm:num_requests_running") == 2
        async with client.session.delete(client.base + "/simulated/faults"):
            assert len(await asyncio.gather(*tasks)) == 3


async def test_what_finds_no_room_in_the_kv_cache_waits_and_what_outgrows_it_begins_anew() -> None:
    async with running(kv_cache_tokens=200, itl_seconds=0.001, cache_blocks=0) as client:
        await client.fail(kind="freeze")
        body = CHAT | {"max_tokens": 10, "ignore_eos": True}
        tasks = [asyncio.create_task(client.post(body)) for _ in range(3)]
        await eventually(lambda: client.shows("vllm:num_requests_waiting", 1))
        prompt = 93
        assert await client.metric("vllm:num_requests_running") == 2
        assert await client.metric("vllm:kv_cache_usage_perc") == pytest.approx(2 * prompt / 200)
        async with client.session.delete(client.base + "/simulated/faults"):
            answers = await asyncio.gather(*tasks)
        assert [one["usage"]["completion_tokens"] for one in answers] == [10] * 3
        assert await client.metric("vllm:num_preemptions_total") >= 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_aborts_the_work(stream: bool) -> None:
    async with running(itl_seconds=0.02) as client:
        body = CHAT | {"max_tokens": 1_000, "ignore_eos": True, "stream": stream}
        task = asyncio.create_task(client.post(body))
        await eventually(lambda: client.metric("vllm:generation_tokens_total"))
        task.cancel()
        await eventually(lambda: client.shows("vllm:num_requests_running", 0))
        made = await client.metric("vllm:generation_tokens_total")
        await asyncio.sleep(0.1)
        assert await client.metric("vllm:generation_tokens_total") == made
        assert 0 < made < 1_000


async def test_error_answers_the_status_once(client: Client) -> None:
    await client.fail(kind="error", status=503, times=2)
    assert [await client.status(CHAT) for _ in range(3)] == [503, 503, 200]


async def test_reset_closes_before_the_first_byte(client: Client) -> None:
    await client.fail(kind="reset")
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.post(CHAT)


async def test_die_cuts_the_stream_after_some_chunks(client: Client) -> None:
    await client.fail(kind="die", after_chunks=2)
    async with client.session.post(
        client.base + "/v1/chat/completions", json=CHAT | {"stream": True}
    ) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_error_chunk_looks_like_the_end_of_a_dying_vllm(client: Client) -> None:
    await client.fail(kind="error_chunk", after_chunks=2)
    lines = await client.lines(CHAT)
    assert lines[-1] == "[DONE]"
    assert json.loads(lines[-2])["error"]["code"] == 500
    assert len(lines) == 5  # the role, two tokens, the error, the end


async def test_hang_never_answers_and_stall_stops_in_the_middle(client: Client) -> None:
    await client.fail(kind="hang")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.post(CHAT), 0.2)
    await client.fail(kind="stall", after_chunks=1, seconds=0.3)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.post(CHAT), 0.15)
    await client.fail(kind="stall", after_chunks=1, seconds=0.1)
    assert (await client.post(CHAT))["usage"]["completion_tokens"] == 3


async def test_freeze_stops_progress_while_health_says_nothing() -> None:
    async with running(itl_seconds=0.01) as client:
        await client.fail(kind="freeze")
        task = asyncio.create_task(client.post(CHAT))
        await asyncio.sleep(0.15)
        async with client.session.get(client.base + "/health") as answer:
            assert answer.status == 200
        assert not task.done()
        async with client.session.delete(client.base + "/simulated/faults"):
            assert (await task)["usage"]["completion_tokens"] == 3


async def test_dead_refuses_work_and_health_says_so(client: Client) -> None:
    await client.fail(kind="dead")
    assert await client.status(CHAT) == 500
    async with client.session.get(client.base + "/health") as answer:
        assert answer.status == 503


async def test_refuse_closes_the_door_for_a_while(client: Client) -> None:
    await client.fail(kind="refuse")  # until it is told otherwise
    async with aiohttp.ClientSession() as other:
        with pytest.raises(aiohttp.ClientConnectorError):
            await other.get(client.base + "/health")

        async def is_open_again() -> bool:
            try:
                async with other.get(client.base + "/health") as answer:
                    return answer.status == 200
            except aiohttp.ClientConnectorError:
                return False

        client.server._listen_again()
        await eventually(is_open_again)
        await client.fail(kind="refuse", seconds=0.1)
        await eventually(is_open_again)


async def test_embeddings_are_worded_as_vllm_does_and_the_same_each_time() -> None:
    async with running(dimensions=8) as client:
        body = {"input": ["one text", "another one"]}
        whole = await client.post(body, "/v1/embeddings")
        assert list(whole) == ["id", "object", "created", "model", "data", "usage"]
        assert [list(each) for each in whole["data"]] == [["index", "object", "embedding"]] * 2
        assert whole["usage"] == {
            "prompt_tokens": 5,
            "total_tokens": 5,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        }
        numbers = whole["data"][0]["embedding"]
        assert sum(number**2 for number in numbers) == pytest.approx(1.0)
        coded = await client.post(body | {"encoding_format": "base64"}, "/v1/embeddings")
        packed = base64.b64decode(coded["data"][0]["embedding"])
        assert array("f", packed).tolist() == numbers
        assert await client.metric("vllm:prompt_tokens_total") == 10
        assert await client.metric("vllm:generation_tokens_total") == 0
        assert await client.metric("vllm:request_success_total") == 4


async def test_embeddings_are_paced_by_their_prefill_and_may_fail() -> None:
    async with running(prefill_tokens_per_second=100) as client:
        await client.fail(kind="error_chunk")
        failed = await client.post({"input": "a text of five tokens"}, "/v1/embeddings")
        assert failed["error"]["code"] == 500
        loop = asyncio.get_running_loop()
        began = loop.time()
        await client.post({"input": [[1] * 20]}, "/v1/embeddings")
        assert loop.time() - began >= 0.2
