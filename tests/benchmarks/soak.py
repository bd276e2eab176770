"""A soak: a thousand organizations in every language for minutes, memory watched, all booked."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import wrk
from tests.benchmarks.engine_counters import counter
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.languages import LANGUAGES
from tests.benchmarks.machine import Split
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import free_port
from tests.benchmarks.report import Row, Table
from tests.benchmarks.stage import Behind, Gateway, mock_engine
from tests.benchmarks.target import Target
from tests.benchmarks.throughput import TOKENS

ORGANIZATIONS = 1_000
REQUESTS = "mock:requests_total"
CONNECTIONS_OF = {("chat", False): 8, ("chat", True): 6}
CONNECTIONS = 4
"""Of each language and shape that is not named above."""
LOOK_SECONDS = 1.0
LATE_SECONDS = 0.5
SETTLED = 0.25
"""Of the time: what a gateway takes while it gets to know its organizations is not growth."""


@dataclass(frozen=True)
class Look:
    """What the gateway took at a moment: seconds since the beginning, bytes of memory and disk."""

    at: float
    memory: int
    disk: int


def measure(plan: Plan) -> Table:
    """Return the rate, memory and disk of a gateway over `--seconds` or `--minutes`. Raises
    BenchmarkFailed unless every answer was right and every request is booked once."""
    split = plan.split
    with (
        mock_engine(folder=plan.folder, split=split) as engine,
        Behind.one(
            engine.base_url, folder=plan.folder, split=split, organizations=ORGANIZATIONS
        ) as behind,
        _gateway(behind, plan.folder, split) as own,
    ):
        looks, outcomes = _soak(own.target, behind.api_keys, plan)
        check = _close_books(own, engine, outcomes)
    title = (
        f"Soak on one core: {ORGANIZATIONS:,} organizations, {len(LANGUAGES)} languages,"
        f" whole and streamed, {plan.seconds:,} s"
    )
    return Table(title, list(_rows(looks, outcomes)), [check], [_remark(outcomes)])


@contextmanager
def _gateway(behind: Behind, folder: Path, split: Split) -> Iterator[Gateway]:
    port = free_port()
    with behind.gateway(folder=folder, cores=split.measured, port=port) as child:
        target = Target("Penstock", f"http://127.0.0.1:{port}", child=child)
        yield Gateway(target, behind.stand_in_url)


def _loads(api_keys: Sequence[str], seconds: int) -> Iterator[wrk.Load]:
    for language in LANGUAGES:
        for stream in (False, True):
            yield wrk.Load(
                language.bodies(stream=stream),
                CONNECTIONS_OF.get((language.name, stream), CONNECTIONS),
                seconds,
                language.stream_proof if stream else language.whole_proof,
                TOKENS if stream else 0,
                language.path,
                api_keys,
            )


def _soak(
    target: Target, api_keys: Sequence[str], plan: Plan
) -> tuple[list[Look], list[wrk.Outcome]]:
    loads = list(_loads(api_keys, plan.seconds))
    began = time.monotonic()
    with ThreadPoolExecutor(len(loads)) as pool:
        runs = [pool.submit(_run, target, load, plan.split) for load in loads]
        looks = list(_looks(target, plan.folder, began, runs))
        return looks, [run.result() for run in runs]


def _run(target: Target, load: wrk.Load, split: Split) -> wrk.Outcome:
    outcome = wrk.run(target.base_url + load.path, load, headers={}, cores=split.others)
    outcome.require_right(load.path)
    return outcome


def _looks(
    target: Target, folder: Path, began: float, runs: Sequence[Future[wrk.Outcome]]
) -> Iterator[Look]:
    while not all(run.done() for run in runs):
        at = time.monotonic() - began
        yield Look(at, target.memory_bytes, _bytes_under(folder))
        time.sleep(LOOK_SECONDS)


def _bytes_under(folder: Path) -> int:
    """Return what a gateway keeps on disk; files come and go meanwhile."""
    total = 0
    for found in folder.glob("gateway-*/**/*"):
        with suppress(FileNotFoundError):
            total += found.stat().st_size
    return total


def _close_books(own: Gateway, engine: Target, outcomes: Sequence[wrk.Outcome]) -> str:
    time.sleep(LATE_SECONDS)
    answers = sum(outcome.answers for outcome in outcomes)
    requests = round(counter(engine.base_url, REQUESTS))
    tally = own.wait_until_booked(answers=answers, requests=requests)
    booked = tally.completed + tally.others
    if tally.duplicates or tally.wrong_charges or booked > requests + _connections():
        raise BenchmarkFailed(f"{answers} answers, {requests} requests at the engine: {tally}")
    return (
        f"{answers:,} answers were right and complete; {tally.completed:,} events completed and"
        f" {tally.others:,} cut off at the end reached billing for {requests:,} requests at the"
        " engine, none twice, every charge right"
    )


def _connections() -> int:
    shapes = [(language.name, stream) for language in LANGUAGES for stream in (False, True)]
    return sum(CONNECTIONS_OF.get(shape, CONNECTIONS) for shape in shapes)


def _rows(looks: Sequence[Look], outcomes: Sequence[wrk.Outcome]) -> Iterator[Row]:
    whole = looks[-1].at
    settled = [look for look in looks if look.at >= whole * SETTLED]
    yield Row("answers", "Penstock", "", [sum(one.answers for one in outcomes)])
    yield Row("answers", "Penstock", "/s", [sum(one.answers_per_second for one in outcomes)])
    for name, look in (("a quarter", settled[0]), ("the end", looks[-1])):
        yield Row(f"memory at {name}", "Penstock", "MB", [look.memory / 1e6])
    yield Row("most memory", "Penstock", "MB", [max(look.memory for look in looks) / 1e6])
    growth = (settled[-1].memory - settled[0].memory) / (whole - settled[0].at)
    yield Row("growth after a quarter", "Penstock", "MB an hour", [growth * 3600 / 1e6])
    disk = [look.disk / 1e6 for look in settled]
    yield Row("its files", "Penstock", "MB", disk)


def _remark(outcomes: Sequence[wrk.Outcome]) -> str:
    shapes = [f"{each.name}{' streamed' * stream}" for each in LANGUAGES for stream in (0, 1)]
    told = [f"{name} {outcome.answers:,}" for name, outcome in zip(shapes, outcomes, strict=True)]
    return "Answers: " + ", ".join(told) + f". Streams have {TOKENS} tokens in a burst."
