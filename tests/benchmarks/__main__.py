"""`python -m tests.benchmarks`: what Penstock's gateway adds and takes, with what proves it."""

import shlex
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tests.benchmarks import latency, peers, through_vllm, throughput, wrk
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import allow_many_files, alone, describe, split_cores
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Report, Table

WEIGHTS = Path("infra/demo_model/weights/bf16")


class Benchmark(StrEnum):
    """What can be measured by itself."""

    LATENCY = "latency"
    REQUESTS = "requests"
    CHUNKS = "chunks"
    VLLM = "vllm"


MEASURES: dict[Benchmark, Callable[[Plan], Table]] = {
    Benchmark.LATENCY: latency.measure,
    Benchmark.REQUESTS: throughput.measure_requests,
    Benchmark.CHUNKS: throughput.measure_chunks,
    Benchmark.VLLM: through_vllm.measure,
}


def main(
    only: Annotated[list[Benchmark] | None, typer.Option(help="May be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=50, help="Rounds, in turn.")] = 5,
    with_peers: Annotated[
        bool, typer.Option("--peers", help="LiteLLM and vllm-router too; installs them once.")
    ] = False,
    weights: Annotated[Path, typer.Option(help="Folder of the model that vLLM serves.")] = WEIGHTS,
    out: Annotated[
        Path | None, typer.Option(help="Also write NAME.md, and NAME.json with every round.")
    ] = None,
) -> None:
    """Measure the gateway: added latency, requests and chunks a second, tokens through vLLM.

    A wrong answer or an unbooked request ends it with exit code 1 instead of a figure.
    """
    allow_many_files()
    try:
        with alone(), tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            plan = Plan(Path(folder), split_cores(), rounds, with_peers, weights)
            _measure(plan, only or list(Benchmark), out)
    except BenchmarkFailed as failure:
        typer.echo(f"benchmark failed: {failure}", err=True)
        raise typer.Exit(1) from failure


def _measure(plan: Plan, wanted: list[Benchmark], out: Path | None) -> None:
    """Fill a report and print it, also what there is of it when a benchmark fails."""
    report = _begin(plan)
    try:
        _fill(report, plan, wanted)
    finally:
        _publish(report, out)


def _begin(plan: Plan) -> Report:
    return Report(
        command=shlex.join(["python", "-m", "tests.benchmarks", *sys.argv[1:]]),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine={**describe(plan.split), "load generator": wrk.version()},
    )


def _fill(report: Report, plan: Plan, wanted: list[Benchmark]) -> None:
    if plan.with_peers:
        peers.install()
    for benchmark in wanted:
        typer.echo(f"{datetime.now(UTC):%H:%M:%S} measuring {benchmark}", err=True)
        report.tables.append(MEASURES[benchmark](plan))


def _publish(report: Report, out: Path | None) -> None:
    typer.echo(report.as_markdown())
    if out:
        out.with_suffix(".md").write_text(report.as_markdown())
        out.with_suffix(".json").write_text(report.as_json())


if __name__ == "__main__":
    typer.run(main)
