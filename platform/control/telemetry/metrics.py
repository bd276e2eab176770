"""`/metrics` of the internal listener: requests, tasks, database connection pools, and what other
packages register. No path, id or name of a tenant is ever a label. A source that is unavailable is
left out, never waited for."""

from collections.abc import Callable, Iterable, Iterator

import structlog
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET
from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from control.db.connection import pool_stats
from control.errors import is_database_unavailable
from control.telemetry.celery_signals import run_counts

logger = structlog.get_logger(__name__)

REGISTRY = CollectorRegistry()
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.3, 0.6, 1.0, 3.0, 10.0, 30.0)

REQUESTS = Counter(
    "penstock_control_http_requests",
    "HTTP requests answered.",
    ["route", "method", "status"],
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    "penstock_control_http_request_duration_seconds",
    "Time to the first byte of a response; internal long polls wait by design.",
    ["route", "method"],
    buckets=BUCKETS,
    registry=REGISTRY,
)

Collect = Callable[[], Iterable[Metric]]
COLLECTORS: list[Collect] = []
"""Read from the database at each scrape, in order; none while the database is unavailable."""


def register(collect: Collect) -> None:
    """Add metrics that are read from the database at each scrape."""
    COLLECTORS.append(collect)


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Return all metrics in Prometheus's text format."""
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)


class Collector:
    """The metrics that are read at each scrape."""

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of tasks, pools and the database."""
        yield from _task_metrics()
        yield from _pool_metrics()
        try:
            for collect in COLLECTORS:
                yield from collect()
        except Exception as error:
            if not is_database_unavailable(error):
                raise
            logger.warning("metrics_database_unavailable")


def _task_metrics() -> Iterator[Metric]:
    runs = CounterMetricFamily(
        "penstock_worker_tasks", "Task runs by final state.", labels=["task", "state"]
    )
    seconds = CounterMetricFamily(
        "penstock_worker_task_duration_seconds",
        "Seconds that tasks ran, in total.",
        labels=["task", "state"],
    )
    for each in run_counts():
        runs.add_metric([each.task, each.state], each.run_count)
        seconds.add_metric([each.task, each.state], each.milliseconds / 1000)
    yield from (runs, seconds)


def _pool_metrics() -> Iterator[Metric]:
    connections = GaugeMetricFamily(
        "penstock_control_db_pool_connections",
        "Connections of a pool to the database, by state: idle or in use.",
        labels=["work", "state"],
    )
    waiting = GaugeMetricFamily(
        "penstock_control_db_pool_waiting", "Requests that wait for a connection.", labels=["work"]
    )
    for work, pool in pool_stats().items():
        size, idle = pool.get("pool_size", 0), pool.get("pool_available", 0)
        connections.add_metric([work, "idle"], idle)
        connections.add_metric([work, "used"], max(0, size - idle))
        waiting.add_metric([work], pool.get("requests_waiting", 0))
    yield from (connections, waiting)


REGISTRY.register(Collector())
