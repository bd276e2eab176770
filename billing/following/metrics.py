"""Whether the books are well, as gauges: proofs, followers, seals, events that were not booked."""

from collections.abc import Iterator

from django.utils import timezone
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from billing.following.selectors import lag_seconds, last_proof, unsealed_day_count
from billing.metering.waiting import open_letter_count


def gauges() -> Iterator[Metric]:
    """Read each of them; before the first proof nothing is said of proofs."""
    now = timezone.now()
    lag = GaugeMetricFamily(
        "penstock_books_follower_lag_seconds",
        "Since all was written that is followed.",
        labels=["follower"],
    )
    for name, seconds in lag_seconds(now).items():
        lag.add_metric([name], seconds)
    yield lag
    yield GaugeMetricFamily(
        "penstock_books_days_unsealed",
        "Days that are over and not sealed.",
        value=unsealed_day_count(now),
    )
    yield GaugeMetricFamily(
        "penstock_books_dead_letters_open",
        "Events that could not be booked and nobody has looked at.",
        value=open_letter_count(),
    )
    proof = last_proof()
    if proof is not None:
        yield GaugeMetricFamily(
            "penstock_books_checks_failed",
            "Checks that failed at the last proof: alarm when not 0.",
            value=proof.failed_count,
        )
        yield GaugeMetricFamily(
            "penstock_books_proof_age_seconds",
            "Since the books were proven.",
            value=(now - proof.made_at).total_seconds(),
        )
