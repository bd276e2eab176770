"""The node's proxy before a mock engine: what it adds to a first byte, and CPU for each chunk."""

import os
import secrets
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from serving.contract.codec import decode, encode
from serving.contract.node import ENGINE_PORT, NodeLaunch, NodeReport, RouteGrant
from tests.benchmarks import wrk
from tests.benchmarks.clocked import Times, time_streams
from tests.benchmarks.contest import bodies
from tests.benchmarks.engine_counters import Window
from tests.benchmarks.machine import Split, pinned
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import Child, free_port, running
from tests.benchmarks.report import Row, Table, difference, percentile
from tests.benchmarks.target import Target

TOKENS = 64
SECONDS = 2
STREAMS = 100
ITL_MS = 20.0
PACED_SECONDS = 8
PACED_SKIP_SECONDS = 3.0
START_SECONDS = 30.0
CHAT = ("POST", "/v1/chat/completions")
BODIES = bodies(max_tokens=TOKENS, stream=True)
PACED = wrk.Load(BODIES, STREAMS, PACED_SECONDS, "data: [DONE]", TOKENS)


class NodeAlone(Child):
    """A node of which the engine, its child, does not count."""

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU time of the node's own process."""
        return sum(psutil.Process(self.process.pid).cpu_times()[:2])


def measure(plan: Plan) -> Table:
    """Return the time to the first byte, straight and through the node, and CPU for each chunk."""
    with proxied(plan.folder, plan.split, itl_ms=0.0) as targets:
        rows = list(_first_bytes(targets, plan))
    with proxied(plan.folder, plan.split, itl_ms=ITL_MS) as (direct, node):
        windows = [_paced(direct, node, plan) for _ in range(plan.rounds)]
    rates = [window.tokens_per_second for window in windows]
    each = [one.cpu_share / one.tokens_per_second * 1e6 for one in windows]
    rows.append(Row("streamed chunks", node.name, "/s", rates))
    rows.append(Row("CPU used", node.name, "of a core", [one.cpu_share for one in windows]))
    rows.append(Row("CPU, each chunk", node.name, "µs", each))
    title = f"The node: 1 connection, then {STREAMS} streams with a token each {ITL_MS:g} ms"
    return Table(title, rows)


@contextmanager
def proxied(folder: Path, split: Split, *, itl_ms: float) -> Iterator[tuple[Target, Target]]:
    """Run a node on the measured core, with a mock engine beside the load; yield both."""
    token = secrets.token_hex(16)
    told, report = folder / "launch.json", folder / "report.json"
    engine = (sys.executable, "-m", "tests.benchmarks.mock", "--itl-ms", str(itl_ms))
    launch = NodeLaunch(
        replica_id="bench",
        command=(*engine, "--port", ENGINE_PORT),
        environment=dict(os.environ),
        grants=(RouteGrant(token, (CHAT, ("GET", "/health"))),),
        report_file=str(report),
        port_base=free_port(),
        port_count=1,
    )
    told.write_bytes(encode(launch))
    command = ["/bin/sh", "-c", f"exec {sys.executable} -m serving.node < {shlex.quote(str(told))}"]
    with running("node", command, folder=folder, cores=split.measured, env={}) as child:
        _wait_for(report, child)
        found = decode(report.read_bytes(), NodeReport)
        report.unlink()
        os.sched_setaffinity(found.engine_pid, split.others)
        child.wait_until_answers(f"{found.engine_url}/health", seconds=START_SECONDS)
        alone = NodeAlone("node", child.process, child.log)
        yield Target("direct", found.engine_url), Target("node", found.url, token, alone)


def _wait_for(report: Path, child: Child) -> None:
    while not report.exists() and child.process.poll() is None:
        time.sleep(0.05)


def _first_bytes(targets: Sequence[Target], plan: Plan) -> Iterator[Row]:
    seen = [[_timed(target, plan) for target in targets] for _ in range(plan.rounds + 1)][1:]
    for percent in (50, 99):
        figure = f"p{percent}, to the first byte of a stream"
        direct, node = [
            Row(
                figure,
                target.name,
                "ms",
                [percentile(once[place].to_first_byte, percent) for once in seen],
            )
            for place, target in enumerate(targets)
        ]
        yield from (direct, node, difference(f"added, {figure}", node, direct))


def _timed(target: Target, plan: Plan) -> Times:
    with pinned(plan.split.others):
        return time_streams(target, BODIES, SECONDS)


def _paced(direct: Target, node: Target, plan: Plan) -> Window:
    window = Window(
        direct.base_url, node, PACED_SKIP_SECONDS, PACED_SECONDS - PACED_SKIP_SECONDS - 1
    )
    outcome = wrk.run(
        node.base_url + PACED.path,
        PACED,
        headers=node.headers,
        cores=plan.split.others,
        meanwhile=window,
    )
    outcome.require_right(node.name)
    return window
