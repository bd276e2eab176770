"""Tokens a second from real vLLM: through the gateway, over straight to the engine."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.engine.vllm import Vllm, installed_device
from tests.benchmarks import stand_in, wrk
from tests.benchmarks.contest import bodies
from tests.benchmarks.engine_counters import Window
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import ANYWHERE, Split
from tests.benchmarks.mock import MODEL
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import free_port, running
from tests.benchmarks.report import Row, Table, ratio
from tests.benchmarks.stage import gateway
from tests.benchmarks.target import Target

STREAMS = 32
TOKENS = 128
SECONDS = 12
SKIP_SECONDS = 2.0
START_SECONDS = 180.0
PROMPTS = 1_000
"""More than a run asks, and new ones each run, so that no prefix cache helps either side."""
UNPINNED = Split(ANYWHERE, ANYWHERE)


def measure(plan: Plan) -> Table:
    """Return tokens a second both ways and their ratio, pair by pair; the order alternates."""
    ban_end = {str(token): -100 for token in _end_tokens(plan.weights)}
    with (
        _vllm(plan.weights, plan.folder) as direct,
        gateway(direct.base_url, folder=plan.folder, split=UNPINNED) as own,
    ):
        pair, seen = (direct, own.target), {direct.name: [0.0] * 0, own.target.name: [0.0] * 0}
        _tokens_per_second(direct, own.target, "warm up ", ban_end)
        for number in range(plan.rounds):
            for target in pair if number % 2 == 0 else pair[::-1]:
                rate = _tokens_per_second(direct, target, f"{number}{target.name} ", ban_end)
                seen[target.name].append(rate)
    rows = [Row("output tokens", name, "/s", values) for name, values in seen.items()]
    return Table(
        f"Tokens through vLLM: {STREAMS} streams of {TOKENS} tokens, {plan.rounds} pairs",
        [*rows, ratio("ratio, pair by pair", rows[1], rows[0])],
        [f"every stream ended with the usage of {TOKENS} tokens"],
        [
            f"Weights {plan.weights}; engine, gateway and load share all cores, nothing is pinned.",
            "Tokens are counted by vLLM itself, from"
            f" {SKIP_SECONDS:g} s after the start of each run to 1 s before its end.",
        ],
    )


@contextmanager
def _vllm(weights: Path, folder: Path) -> Iterator[Target]:
    port = free_port()
    deployment = stand_in.deployment(str(weights.resolve()), slots=STREAMS)
    launch = Vllm(installed_device()).launch(deployment, port=port)
    with running(
        "vllm", launch.command, folder=folder, cores=ANYWHERE, env=launch.environment
    ) as child:
        child.wait_until_answers(f"http://127.0.0.1:{port}/health", seconds=START_SECONDS)
        yield Target("direct", f"http://127.0.0.1:{port}", child=child)


def _tokens_per_second(direct: Target, target: Target, tag: str, ban_end: dict[str, int]) -> float:
    """Run the load against a target and return what the engine made of it."""
    model = stand_in.VARIANT_ID if target is direct else MODEL
    sent = bodies(
        max_tokens=TOKENS,
        count=PROMPTS,
        tag=tag,
        model=model,
        stream=True,
        stream_options={"include_usage": True},
        temperature=0,
        logit_bias=ban_end,
    )
    window = Window(direct.base_url, target, SKIP_SECONDS, SECONDS - SKIP_SECONDS - 1)
    load = wrk.Load(sent, STREAMS, SECONDS, f'"completion_tokens":{TOKENS},', frames_min=1)
    outcome = wrk.run(
        target.chat_url, load, headers=target.headers, cores=ANYWHERE, meanwhile=window
    )
    outcome.require_right(target.name)
    return window.tokens_per_second


def _end_tokens(weights: Path) -> list[int]:
    """Return the tokens that end an answer: banned, so that each is as long as the next."""
    path = weights / "config.json"
    if not path.exists():
        raise BenchmarkFailed(f"{weights} holds no model; --weights names another folder")
    found = json.loads(path.read_text()).get("eos_token_id")
    return found if isinstance(found, list) else [found]
