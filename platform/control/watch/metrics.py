"""`/metrics` of the internal listener: requests, tasks, the pool of connections, what waits to
leave, whether the audit's chain held. A part that does not answer is left out, never waited for."""

from collections.abc import Iterator

import structlog
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from control.audit.selectors import last_proof, waiting_count
from control.database.pools import pool_stats
from control.errors import is_database_away
from control.http.metrics import READINGS, REGISTRY, tell
from control.outbox.selectors import standings
from control.watch.task_counts import counts

logger = structlog.get_logger(__name__)


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer in Prometheus's format."""
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)


class Collector:
    """What is read when somebody asks."""

    def describe(self) -> list[Metric]:
        """Nothing is asked of anybody before then."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read each part."""
        yield from _tasks()
        yield from _pool()
        try:
            for reading in READINGS:
                yield from reading()
        except Exception as error:
            if not is_database_away(error):
                raise
            logger.warning("metrics_without_database")


def _tasks() -> Iterator[Metric]:
    runs = CounterMetricFamily(
        "penstock_control_tasks", "Runs of tasks, by how they ended.", labels=["task", "state"]
    )
    seconds = CounterMetricFamily(
        "penstock_control_task_seconds", "How long they took, in all.", labels=["task", "state"]
    )
    for each in counts():
        runs.add_metric([each.task, each.state], each.run_count)
        seconds.add_metric([each.task, each.state], each.milliseconds / 1000)
    yield from (runs, seconds)


def _pool() -> Iterator[Metric]:
    stats = pool_stats()
    for name, words in {
        "pool_size": "Connections to the database.",
        "pool_available": "Those of them that are free.",
        "requests_waiting": "Who waits for one.",
    }.items():
        short = name.removeprefix("pool_")
        found = GaugeMetricFamily(f"penstock_control_database_pool_{short}", words, labels=["work"])
        for work, its in stats.items():
            found.add_metric([work], its.get(name, 0))
        yield found


def _database() -> Iterator[Metric]:
    now = timezone.now()
    waiting = GaugeMetricFamily(
        "penstock_control_outbox_waiting", "Messages that wait to leave.", labels=["kind"]
    )
    late = GaugeMetricFamily(
        "penstock_control_outbox_late", "Those of them that are late.", labels=["kind"]
    )
    for each in standings(now):
        waiting.add_metric([each.kind], each.waiting_count)
        late.add_metric([each.kind], each.late_count)
    deeds = GaugeMetricFamily(
        "penstock_control_deeds_waiting", "Deeds that are not in the chain yet."
    )
    deeds.add_metric([], waiting_count())
    yield from (waiting, late, deeds)
    proof = last_proof()
    if proof is not None:
        faults = GaugeMetricFamily(
            "penstock_control_audit_faults", "Faults found in the audit's chain: alarm when not 0."
        )
        faults.add_metric([], len(proof.faults))
        age = GaugeMetricFamily("penstock_control_audit_proof_age_seconds", "Since it was proven.")
        age.add_metric([], (now - proof.made_at).total_seconds())
        yield from (faults, age)


tell(_database)
REGISTRY.register(Collector())
