"""Very many slow streams at once on two gateways: none may be lost, none may stand still."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import typer

from tests.benchmarks.contest import bodies
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import ANYWHERE, Split
from tests.benchmarks.open_loop import Arrival, Seen, play
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import Child
from tests.benchmarks.report import Row, Table, percentile
from tests.benchmarks.stage import Behind, Gateway, mock_engine
from tests.benchmarks.target import Target

GATEWAYS = 2
STREAMS = 10_000
TOKENS = 80
ITL_MS = 500.0
RAMP_SECONDS = 20.0
"""In which all of them begin, evenly; each lasts twice as long."""
LATE_MS = 1_000.0
"""A token that comes so much later than it was to come has stood still."""
ADDRESSES = 20
"""Of the loopback: no single one may hold a gateway's connections."""
SLOTS = 2 * STREAMS


@dataclass(frozen=True)
class Door:
    """Two gateways behind one socket."""

    own: Gateway
    children: list[Child]


def measure(plan: Plan) -> Table:
    """Return what the streams saw. Raises BenchmarkFailed if one was lost or not booked."""
    with _door(plan) as door:
        before = [child.cpu_seconds for child in door.children]
        typer.echo(f"  {STREAMS:,} streams of {TOKENS * ITL_MS / 1e3:g} s", err=True)
        seen = play(_arrivals(door.own.target))
        spent = [child.cpu_seconds - cpu for child, cpu in zip(door.children, before, strict=True)]
        memory = [child.memory_bytes / 1e6 for child in door.children]
        lost = [(one.status, one.is_whole) for one in seen if not one.is_whole]
        if lost:
            raise BenchmarkFailed(f"{len(lost)} streams were not whole, such as {lost[:3]}")
        tally = door.own.wait_until_booked(answers=STREAMS, requests=STREAMS)
    if tally.completed != STREAMS or tally.duplicates or tally.wrong_charges:
        raise BenchmarkFailed(f"{STREAMS} streams, but the books have {tally}")
    check = f"{STREAMS:,} streams were whole, and each is booked once at the right charge"
    return Table(_title(), [*_rows(seen), *_costs(spent, memory)], [check], _remarks())


def _title() -> str:
    return f"Open streams: {STREAMS:,} at once of {1e3 / ITL_MS:g} tokens/s, {GATEWAYS} gateways"


def _rows(seen: list[Seen]) -> Iterator[Row]:
    late = [gap - ITL_MS for one in seen for gap in one.gaps_ms]
    begins, ends = max(one.sent_at for one in seen), min(one.ended_at for one in seen)
    yield Row("open at once", "Penstock", "", [STREAMS if begins < ends else 0])
    yield Row("p99 TTFT", "Penstock", "ms", [percentile([one.ttft_ms for one in seen], 99)])
    yield Row("p99, a token later than due", "Penstock", "ms", [percentile(late, 99)])
    yield Row("latest token", "Penstock", "ms", [max(late)])
    yield Row(f"tokens over {LATE_MS:g} ms late", "Penstock", "", [sum(x > LATE_MS for x in late)])
    yield Row("streams lost", "Penstock", "", [sum(not one.is_whole for one in seen)])


def _costs(spent: list[float], memory: list[float]) -> Iterator[Row]:
    yield Row("CPU, each chunk", "Penstock", "µs", [sum(spent) / (STREAMS * TOKENS) * 1e6])
    yield Row("memory of a gateway", "Penstock", "MB", memory)


def _remarks() -> list[str]:
    return [
        "Later than due: the time between two tokens of a stream, less what the engine lets lie"
        " between them; load, engine and gateways share all cores, and the load's own lateness is"
        " in it.",
        "CPU of the gateways is of whole streams: what begins and ends one is in it.",
    ]


def _arrivals(target: Target) -> list[Arrival]:
    asked = bodies(max_tokens=TOKENS, stream=True)
    return [
        Arrival(
            at=RAMP_SECONDS * number / STREAMS,
            who="all",
            target=target,
            body=asked[number % len(asked)],
            source=f"127.0.2.{number % ADDRESSES + 1}",
        )
        for number in range(STREAMS)
    ]


@contextmanager
def _door(plan: Plan) -> Iterator[Door]:
    split = Split(ANYWHERE, ANYWHERE)
    with ExitStack() as stack:
        engine = stack.enter_context(mock_engine(folder=plan.folder, split=split, itl_ms=ITL_MS))
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4_096))
        behind = stack.enter_context(
            Behind.one(engine.base_url, folder=plan.folder, split=split, slots=SLOTS)
        )
        children = [
            stack.enter_context(
                behind.gateway(folder=plan.folder, cores=ANYWHERE, descriptor=listening.fileno())
            )
            for _ in range(GATEWAYS)
        ]
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        own = Gateway(Target("Penstock", url, behind.api_key), behind.stand_in_url)
        yield Door(own, children)
