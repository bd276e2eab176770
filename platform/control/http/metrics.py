"""What control counts of the requests it answers. No path, no id and no name of a tenant's is ever
a label."""

from prometheus_client import CollectorRegistry, Counter, Histogram

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
