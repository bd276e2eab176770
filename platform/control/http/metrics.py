"""What control counts of the requests it answers. No path, no id and no name of a tenant's is ever
a label."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric

REGISTRY = CollectorRegistry()
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.3, 0.6, 1.0, 3.0, 10.0, 30.0)

REQUESTS = Counter(
    "penstock_control_requests",
    "Requests answered.",
    ["route", "method", "status"],
    registry=REGISTRY,
)
SECONDS = Histogram(
    "penstock_control_request_seconds",
    "From a request's arrival to the beginning of its answer; internal long polls wait by design.",
    ["route", "method"],
    buckets=BUCKETS,
    registry=REGISTRY,
)

Reading = Callable[[], Iterable[Metric]]
READINGS: list[Reading] = []
"""What `/metrics` asks the database; one after the other, none where it does not answer."""


def tell(reading: Reading) -> None:
    """Have `/metrics` tell this, too, read from the database when somebody asks."""
    READINGS.append(reading)
