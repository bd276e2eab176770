"""vLLM's engine core is killed in mid-stream: an honest end, no charge, and a new replica."""

import json
import os
import signal
from collections.abc import Iterator

import httpx
import psutil
import pytest

from tests.fixtures.books import Books
from tests.fixtures.load import wait_until
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

BACK_SECONDS_MAX = 150


def engine_core(stack: Stack) -> psutil.Process:
    """Return the child of vLLM's API server that does the work."""
    children = psutil.Process(stack.living_pid("engine")).children(recursive=True)
    return next(child for child in children if "EngineCore" in " ".join(child.cmdline()))


def frames(reply: httpx.Response) -> Iterator[str]:
    """Return the data of each server-sent event."""
    return (line[6:] for line in reply.iter_lines() if line.startswith("data: "))


def long_answer(stack: Stack, client: httpx.Client) -> httpx.Request:
    return client.build_request(
        "POST",
        f"{stack.api_base}/completions",
        headers={"authorization": f"Bearer {stack.api_key}"},
        json={
            "model": stack.model,
            "prompt": "Penstock",
            "max_tokens": 1_500,
            "ignore_eos": True,
            "stream": True,
        },
    )


def answers(stack: Stack) -> bool:
    reply = httpx.post(
        f"{stack.api_base}/chat/completions",
        headers={"authorization": f"Bearer {stack.api_key}"},
        json={"model": stack.model, "messages": [{"role": "user", "content": "hi"}]},
        timeout=30,
    )
    return reply.status_code == 200


def test_a_killed_engine_core_ends_the_stream_honestly_and_comes_back(stack: Stack) -> None:
    killed = [replica.replica_id for replica in stack.replicas()]
    with httpx.Client(timeout=60) as client:
        reply = client.send(long_answer(stack, client), stream=True)
        incoming = frames(reply)
        seen = [next(incoming) for _ in range(5)]
        os.kill(engine_core(stack).pid, signal.SIGKILL)
        seen += incoming
    errors = [frame for frame in seen if "error" in json.loads(frame)]
    assert errors == seen[-1:]

    books, event_id = Books(stack.database_url), reply.headers["x-request-id"]
    wait_until(lambda: books.events([event_id]), timeout_seconds=30, what="the event is booked")
    event = books.events([event_id])[event_id]
    assert (event["outcome"], event["charged_nanos"]) == ("engine_failed", 0)
    assert event["output_tokens"] > 0

    wait_until(lambda: answers(stack), timeout_seconds=BACK_SECONDS_MAX, what="it serves again")
    assert [replica.replica_id for replica in stack.replicas()] != killed
    assert books.ledger_sum_nanos() == 0
