"""Samples of engines' counters, as fleets would send them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from billing.economics.services import accept_samples
from serving.contract.counters import CountersReply, CountersRequest, EngineSample

HOUR = datetime(2026, 11, 21, 12, tzinfo=UTC)


def make_sample(minutes: float, replica_id: str = "rep_1", **figures: Any) -> EngineSample:
    """Return a sample so many minutes after HOUR, of a replica that started with it."""
    values = {
        "replica_id": replica_id,
        "deployment_id": "dep_1",
        "started_at": HOUR,
        "at": HOUR + timedelta(minutes=minutes),
        "input_tokens": 0,
        "output_tokens": 0,
        "cached_tokens": 0,
        "requests": 0,
        **figures,
    }
    return EngineSample(**values)


def send(*samples: EngineSample) -> CountersReply:
    """Have billing keep the samples."""
    return accept_samples(CountersRequest("fl_1", samples))
