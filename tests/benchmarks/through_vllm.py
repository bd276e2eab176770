"""Tokens a second from real vLLM: through the gateway, over straight to the engine."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.contract.records import Task
from serving.engine.vllm import VllmAdapter, installed_device
from tests.benchmarks import stand_in, wrk
from tests.benchmarks.contest import bodies
from tests.benchmarks.engine_counters import Window
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import Cores, Split
from tests.benchmarks.mock import MODEL
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import free_port, running
from tests.benchmarks.report import Row, Table, ratio
from tests.benchmarks.stage import Gateway, gateway
from tests.benchmarks.target import Target

STREAMS = 32
TOKENS = 128
SECONDS = 10
SKIP_SECONDS = 2.0
START_SECONDS = 180.0
PROMPTS = 1_000
"""More than a run asks, and new ones each run, so that no prefix cache helps either side."""


def measure(plan: Plan) -> Table:
    """Return tokens a second both ways and their ratio, pair by pair; the order alternates."""
    end_tokens = _end_tokens(plan.weights)
    with (
        vllm(plan, plan.weights) as direct,
        gateway(direct.base_url, folder=plan.folder, split=beside(plan.split)) as own,
    ):
        race = _Race(direct, own, end_tokens, plan.split.measured)
        race.warm_up()
        pairs = [race.pair(swapped=number % 2 == 1) for number in range(plan.rounds)]
        check = race.close_books()
    ours = Row("output tokens", own.target.name, "/s", [through for _, through in pairs])
    theirs = Row("output tokens", direct.name, "/s", [straight for straight, _ in pairs])
    return Table(
        f"Tokens through vLLM: {STREAMS} streams of {TOKENS} tokens, {plan.rounds} pairs",
        [theirs, ours, ratio("ratio, pair by pair", ours, theirs)],
        [check],
        [
            f"Weights {plan.weights}; the engine has cores of its own, as where it has an"
            f" accelerator: {sorted(plan.split.others)}; gateway and load share"
            f" {sorted(plan.split.measured)}.",
            "Tokens are counted by vLLM itself, from"
            f" {SKIP_SECONDS:g} s after the start of each run to 1 s before its end.",
        ],
    )


class _Race:
    """Runs of the same load, straight to the engine and through the gateway."""

    def __init__(self, direct: Target, own: Gateway, end_tokens: list[int], cores: Cores) -> None:
        self.direct = direct
        self.own = own
        self.cores = cores
        self.runs = 0
        self.answers = 0
        self.ban_end = {str(token): -100 for token in end_tokens}

    def pair(self, *, swapped: bool) -> tuple[float, float]:
        """Return tokens a second straight and through; `swapped` runs through first."""
        if swapped:
            through = self.run(self.own.target)
            return self.run(self.direct), through
        return self.run(self.direct), self.run(self.own.target)

    def warm_up(self) -> None:
        """Let engine and gateway see the load once; what it takes counts for nothing."""
        self._send(self.own.target, lambda: None)

    def run(self, target: Target) -> float:
        """Run the load against a target and return the tokens a second that the engine made."""
        window = Window(self.direct.base_url, target, SKIP_SECONDS, SECONDS - SKIP_SECONDS - 1)
        outcome = self._send(target, window)
        outcome.require_right(target.name)
        if target is self.own.target:
            self.answers += outcome.answers
        return window.tokens_per_second

    def _send(self, target: Target, meanwhile: Callable[[], None]) -> wrk.Outcome:
        self.runs += 1
        load = self._load(target)
        return wrk.run(
            target.base_url + load.path,
            load,
            headers=target.headers,
            cores=self.cores,
            meanwhile=meanwhile,
        )

    def close_books(self) -> str:
        """Prove that what was answered is booked, and return the sentence that says so."""
        tally = self.own.wait_until_booked(answers=self.answers, requests=0)
        if tally.duplicates or tally.wrong_charges:
            raise BenchmarkFailed(f"the books are wrong: {tally}")
        return (
            f"every stream ended with the usage of {TOKENS} tokens; the {self.answers:,} through"
            " the gateway are booked, none twice, every charge right"
        )

    def _load(self, target: Target) -> wrk.Load:
        sent = bodies(
            max_tokens=TOKENS,
            count=PROMPTS,
            tag=f"{self.runs}.",
            model=stand_in.VARIANT_ID if target is self.direct else MODEL,
            stream=True,
            stream_options={"include_usage": True},
            temperature=0,
            logit_bias=self.ban_end,
        )
        return wrk.Load(sent, STREAMS, SECONDS, f'"completion_tokens":{TOKENS},', frames_min=1)


def beside(split: Split) -> Split:
    """Keep what belongs to the gateway off the engine's cores."""
    return Split(split.measured, split.measured)


@contextmanager
def vllm(plan: Plan, weights: Path, task: Task = "generate") -> Iterator[Target]:
    """Run vLLM as the fleet starts it, on cores of its own."""
    port, cores = free_port(), plan.split.others
    deployment = stand_in.deployment(str(weights.resolve()), slots=STREAMS, task=task)
    engine = VllmAdapter(installed_device(), cpu_threads=max(len(cores) - 1, 1))
    launch = engine.launch(deployment, port=port)
    with running(
        "vllm", launch.command, folder=plan.folder, cores=cores, env=launch.environment
    ) as child:
        child.wait_until_answers(f"http://127.0.0.1:{port}/health", seconds=START_SECONDS)
        yield Target("direct", f"http://127.0.0.1:{port}", child=child)


def _end_tokens(weights: Path) -> list[int]:
    """Return the tokens that end an answer: banned, so that each is as long as the next."""
    path = weights / "config.json"
    if not path.exists():
        raise BenchmarkFailed(f"{weights} holds no model; --weights names another folder")
    found = json.loads(path.read_text()).get("eos_token_id")
    return found if isinstance(found, list) else [found]
