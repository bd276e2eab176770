"""`python -m tests.benchmarks`: what Penstock's gateway and its books take, with what proves it."""

import shlex
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tests.benchmarks import (
    attacks,
    cold_start,
    embeddings,
    fairness,
    feed,
    fleet,
    idempotency,
    languages,
    latency,
    limits,
    neighbour,
    node,
    overload,
    peers,
    prefix,
    processes,
    restarts,
    revocation,
    shares,
    sign_in,
    soak,
    streams,
    through_vllm,
    throughput,
    wrk,
)
from tests.benchmarks.books import (
    close,
    density,
    ingest,
    integrity,
    pages,
    poll,
    statement,
    webhooks,
)
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import allow_many_files, alone, describe, split_cores
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import unwind_when_asked
from tests.benchmarks.report import Report, Table

WEIGHTS = Path("infra/demo_model/weights/bf16")


class Benchmark(StrEnum):
    """What can be measured by itself."""

    LATENCY = "latency"
    REQUESTS = "requests"
    CHUNKS = "chunks"
    NODE = "node"
    GATEWAYS = "gateways"
    LANGUAGES = "languages"
    VLLM = "vllm"
    EMBEDDINGS = "embeddings"
    ATTACKS = "attacks"
    FAIRNESS = "fairness"
    NEIGHBOUR = "neighbour"
    OVERLOAD = "overload"
    PREFIX = "prefix"
    IDEMPOTENCY = "idempotency"
    SOAK = "soak"
    RESTARTS = "restarts"
    STREAMS = "streams"
    LIMITS = "limits"
    FEED = "feed"
    SHARES = "shares"
    FLEET = "fleet"
    INGEST = "ingest"
    REPEATS = "repeats"
    POLL = "poll"
    USAGE = "usage"
    INTEGRITY = "integrity"
    BYTES = "bytes"
    CLOSE = "close"
    WEBHOOKS = "webhooks"
    LEDGER = "ledger"
    SIGN_IN = "sign-in"
    REVOCATION = "revocation"
    COLD_START = "cold-start"


MEASURES: dict[Benchmark, Callable[[Plan], Table]] = {
    Benchmark.LATENCY: latency.measure,
    Benchmark.REQUESTS: throughput.measure_requests,
    Benchmark.CHUNKS: throughput.measure_chunks,
    Benchmark.NODE: node.measure,
    Benchmark.GATEWAYS: processes.measure,
    Benchmark.LANGUAGES: languages.measure,
    Benchmark.VLLM: through_vllm.measure,
    Benchmark.EMBEDDINGS: embeddings.measure,
    Benchmark.ATTACKS: attacks.measure,
    Benchmark.FAIRNESS: fairness.measure,
    Benchmark.NEIGHBOUR: neighbour.measure,
    Benchmark.OVERLOAD: overload.measure,
    Benchmark.PREFIX: prefix.measure,
    Benchmark.IDEMPOTENCY: idempotency.measure,
    Benchmark.SOAK: soak.measure,
    Benchmark.RESTARTS: restarts.measure,
    Benchmark.STREAMS: streams.measure,
    Benchmark.LIMITS: limits.measure,
    Benchmark.FEED: feed.measure,
    Benchmark.SHARES: shares.measure,
    Benchmark.FLEET: fleet.measure,
    Benchmark.INGEST: ingest.measure,
    Benchmark.REPEATS: ingest.measure_repeats,
    Benchmark.POLL: poll.measure,
    Benchmark.USAGE: pages.measure,
    Benchmark.INTEGRITY: integrity.measure,
    Benchmark.BYTES: density.measure,
    Benchmark.CLOSE: close.measure,
    Benchmark.WEBHOOKS: webhooks.measure,
    Benchmark.LEDGER: statement.measure,
    Benchmark.SIGN_IN: sign_in.measure,
    Benchmark.REVOCATION: revocation.measure,
    Benchmark.COLD_START: cold_start.measure,
}
OF_THE_GATEWAY = {
    Benchmark.LATENCY,
    Benchmark.REQUESTS,
    Benchmark.CHUNKS,
    Benchmark.NODE,
    Benchmark.GATEWAYS,
    Benchmark.LANGUAGES,
    Benchmark.VLLM,
    Benchmark.EMBEDDINGS,
    Benchmark.SOAK,
}
"""What wrk sends load for; the books need no more than PostgreSQL."""


def main(  # noqa: PLR0917 -- options of a command line
    only: Annotated[list[Benchmark] | None, typer.Option(help="May be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=50, help="Rounds, in turn.")] = 5,
    with_peers: Annotated[
        bool, typer.Option("--peers", help="LiteLLM and vllm-router too; installs them once.")
    ] = False,
    weights: Annotated[Path, typer.Option(help="Folder of the model that vLLM serves.")] = WEIGHTS,
    seconds: Annotated[
        int, typer.Option(min=1, help="Of ingest, lease polls, rate limits and the soak.")
    ] = 60,
    minutes: Annotated[int, typer.Option(min=0, help="The same in minutes.")] = 0,
    events: Annotated[int, typer.Option(min=1000, help="In the books at rest.")] = 1_000_000,
    out: Annotated[
        Path | None, typer.Option(help="Also write NAME.md, and NAME.json with every round.")
    ] = None,
) -> None:
    """Measure the gateway (added latency, requests and chunks a second, tokens through vLLM) and
    the books (ingest, repeats, lease polls, pages over usage, the checks, bytes).

    A wrong answer, an unbooked request or a broken promise of the books ends it with exit code 1
    instead of a figure.
    """
    allow_many_files()
    unwind_when_asked()
    try:
        with alone(), tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            plan = Plan(
                *(Path(folder), split_cores(), rounds, with_peers, weights),
                *(minutes * 60 or seconds, events),
            )
            _measure(plan, only or list(Benchmark), out)
    except BenchmarkFailed as failure:
        typer.echo(f"benchmark failed: {failure}", err=True)
        raise typer.Exit(1) from failure


def _measure(plan: Plan, wanted: list[Benchmark], out: Path | None) -> None:
    """Fill a report and print it, also what there is of it when a benchmark fails."""
    report = _begin(plan, wanted)
    try:
        _fill(report, plan, wanted)
    finally:
        _publish(report, out)


def _begin(plan: Plan, wanted: list[Benchmark]) -> Report:
    load = {"load generator": wrk.version()} if OF_THE_GATEWAY & set(wanted) else {}
    return Report(
        command=shlex.join(["python", "-m", "tests.benchmarks", *sys.argv[1:]]),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine={**describe(plan.split), **load},
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
