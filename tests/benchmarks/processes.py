"""Gateway processes of one host, on one listening socket: what two of them do more than one."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.benchmarks import wrk
from tests.benchmarks.contest import bodies
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import ANYWHERE, Cores, Split
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import Child
from tests.benchmarks.report import Row, Table
from tests.benchmarks.stage import Behind, Gateway, mock_engine
from tests.benchmarks.target import Target
from tests.benchmarks.throughput import TOKENS

COUNTS = (1, 2)
CONNECTIONS = 64
SECONDS = 4
LOAD = wrk.Load(bodies(max_tokens=TOKENS), CONNECTIONS, SECONDS, f'"completion_tokens":{TOKENS}')
CORES_WANTED = 5
"""One for each of two gateways, the rest for the load, the engine and the stand-in."""


def measure(plan: Plan) -> Table:
    """Return whole answers a second of one and of two processes, and the CPU time of each answer.

    What two processes cost for an answer more than one is what they can scale less than twofold;
    the rate shows it where there are cores for all.
    """
    rows: list[Row] = []
    checks: list[str] = []
    for count in COUNTS:
        with _running(plan, count) as run:
            seen = [run() for _ in range(plan.rounds)]
            checks.append(run.close_books())
        name = "1 process" if count == 1 else f"{count} processes"
        rows.append(Row(f"whole answers, {TOKENS} tokens", name, "/s", [rate for rate, _ in seen]))
        rows.append(Row("CPU of the gateways, each", name, "µs", [cpu_us for _, cpu_us in seen]))
    title = f"Gateway processes on one socket: {CONNECTIONS} connections, rounds of {SECONDS} s"
    return Table(title, rows, checks, _remarks())


def _remarks() -> list[str]:
    cores = len(os.sched_getaffinity(0))
    if cores >= CORES_WANTED:
        return ["Each gateway had a core of its own."]
    return [
        f"{cores} cores are too few to show two gateways beside their load: all share them, and"
        " only the CPU time of an answer tells what a second process costs."
    ]


@contextmanager
def _running(plan: Plan, count: int) -> Iterator["Run"]:
    cores = sorted(os.sched_getaffinity(0))
    own = [frozenset({core}) for core in cores[:count]]
    others = frozenset(cores[count:])
    if len(cores) < CORES_WANTED:
        own, others = [ANYWHERE] * count, ANYWHERE
    with ExitStack() as stack:
        split = Split(own[0], others)
        engine = stack.enter_context(mock_engine(folder=plan.folder, split=split))
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=2_048))
        behind = stack.enter_context(Behind.one(engine.base_url, folder=plan.folder, split=split))
        children = [
            stack.enter_context(
                behind.gateway(folder=plan.folder, cores=each, descriptor=listening.fileno())
            )
            for each in own
        ]
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        door = Gateway(Target("gateways", url, behind.api_key), behind.stand_in_url)
        run = Run(door, children, others)
        run()
        yield run


class Run:
    """One load on all processes behind a door."""

    def __init__(self, door: Gateway, children: list[Child], cores: Cores) -> None:
        self._door = door
        self._children = children
        self._cores = cores
        self._answers = 0

    def __call__(self) -> tuple[float, float]:
        """Return answers a second, and the microseconds that each took of all processes."""
        target, before = self._door.target, self._cpu_seconds()
        outcome = wrk.run(
            target.base_url + LOAD.path, LOAD, headers=target.headers, cores=self._cores
        )
        outcome.require_right(target.name)
        self._answers += outcome.answers
        cpu_us = (self._cpu_seconds() - before) / outcome.answers * 1e6
        return outcome.answers_per_second, cpu_us

    def close_books(self) -> str:
        """Prove that each answer is booked once, and return the sentence that says so."""
        tally = self._door.wait_until_booked(answers=self._answers, requests=self._answers)
        if tally.duplicates or tally.wrong_charges:
            raise BenchmarkFailed(f"the books are wrong: {tally}")
        count = len(self._children)
        return (
            f"{self._answers:,} answers of {count} were right, and booked once at the right charge"
        )

    def _cpu_seconds(self) -> float:
        return sum(child.cpu_seconds for child in self._children)
