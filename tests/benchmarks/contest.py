"""The same load for several targets in turn, every answer checked, the gateway's books too."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from tests.benchmarks import peers, wrk
from tests.benchmarks.clocked import Times, time_streams
from tests.benchmarks.engine_counters import counter
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import Split, pinned
from tests.benchmarks.mock import MODEL
from tests.benchmarks.plan import Plan
from tests.benchmarks.stage import Gateway, gateway, mock_engine, null_relay
from tests.benchmarks.target import Target

REQUESTS = "mock:requests_total"
BODIES = 64
WARM_UP_SECONDS = 2
LATE_SECONDS = 0.5
"""A request that wrk sent in its last moment reaches the engine within this."""
PROMPT = (
    "A penstock is the gated, metered pipe that feeds a turbine. Say what flows, and how much. "
)


def bodies(*, max_tokens: int, count: int = BODIES, tag: str = "", **more: object) -> list[bytes]:
    """Return chat requests of about 750 bytes that differ from their first word on."""
    fields = {"model": MODEL, "max_tokens": max_tokens, **more}
    prompts = [f"{tag}{number} {PROMPT * 7}" for number in range(count)]
    messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return [json.dumps({"messages": turn, **fields}).encode() for turn in messages]


class Contest:
    """Targets before one mock engine, and what the gateway among them answered so far."""

    def __init__(self, engine: Target, own: Gateway, others: list[Target], split: Split) -> None:
        self.engine = engine
        self.own = own
        self.targets = [engine, own.target, *others]
        self.split = split
        self._answers = self._requests = self._cut_off = 0

    def warm_up(self, load: wrk.Load, *only: Target) -> None:
        """Let every target see the load once; what it takes counts for nothing."""
        short = replace(load, seconds=WARM_UP_SECONDS, frames_min=0)
        for target in only or self.targets:
            self._send(target, short, lambda: None)

    def run(
        self, target: Target, load: wrk.Load, meanwhile: Callable[[], None] = lambda: None
    ) -> wrk.Outcome:
        """Send a load to a target. Raises BenchmarkFailed unless every answer was right."""
        outcome = self._send(target, load, meanwhile)
        outcome.require_right(target.name)
        return outcome

    def time_streams(self, target: Target, bodies: Sequence[bytes], seconds: float) -> Times:
        """Time one stream after the other. Raises BenchmarkFailed unless every one was right."""
        before = counter(self.engine.base_url, REQUESTS)
        with pinned(self.split.others):
            times = time_streams(target, bodies, seconds)
        if target is self.own.target:
            self._answers += len(times.to_end)
            self._requests += round(counter(self.engine.base_url, REQUESTS) - before)
        return times

    def _send(self, target: Target, load: wrk.Load, meanwhile: Callable[[], None]) -> wrk.Outcome:
        before = counter(self.engine.base_url, REQUESTS)
        outcome = wrk.run(
            target.base_url + load.path,
            load,
            headers=target.headers,
            cores=self.split.others,
            meanwhile=meanwhile,
        )
        if target is self.own.target:
            time.sleep(LATE_SECONDS)
            self._answers += outcome.answers
            self._requests += round(counter(self.engine.base_url, REQUESTS) - before)
            self._cut_off += load.connections
        return outcome

    def close_books(self) -> str:
        """Prove that each request is booked once, and return the sentence that says so.

        wrk cuts its last requests off, one a connection at most: those may be booked either way.
        """
        tally = self.own.wait_until_booked(answers=self._answers, requests=self._requests)
        booked = tally.completed + tally.others
        if tally.duplicates or tally.wrong_charges:
            raise BenchmarkFailed(f"the books are wrong: {tally}")
        if booked > self._requests + self._cut_off:
            raise BenchmarkFailed(
                f"{self._answers} answers seen, {self._requests} requests at the engine: {tally}"
            )
        return (
            f"{self._answers:,} answers of Penstock's gateway were right and complete;"
            f" {tally.completed:,} events completed and {tally.others:,} cut off reached billing"
            f" for {self._requests:,} requests at the engine, none twice, every charge right"
        )


@contextmanager
def contest(plan: Plan, *, itl_ms: float = 0.0) -> Iterator[Contest]:
    """Start the mock engine, the gateway, a null relay and, if wanted, the peers before it."""
    folder, split = plan.folder, plan.split
    with ExitStack() as stack:
        engine = stack.enter_context(mock_engine(folder=folder, split=split, itl_ms=itl_ms))
        own = stack.enter_context(gateway(engine.base_url, folder=folder, split=split))
        relay = stack.enter_context(null_relay(engine.base_url, folder=folder, split=split))
        others = [
            stack.enter_context(start(engine.base_url, folder=folder, cores=split.measured))
            for start in (peers.STARTS if plan.with_peers else ())
        ]
        yield Contest(engine, own, [relay, *others], split)
