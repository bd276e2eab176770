"""Usage of an organization's rate limits now, read from the gateways' counters in Redis.

The console and the management API show it. Neither waits longer than `WAIT_SECONDS`, and both say
where Redis did not respond. No decision depends on these figures.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import redis
import structlog
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from serving.contract.limits import MEASURES, STATE, Measure, count_name, shared_time, used
from serving.contract.records import RateLimitSettings

logger = structlog.get_logger(__name__)

WAIT_SECONDS = 0.2
FIGURE_OF: dict[Measure, str] = {
    "requests": "requests_per_minute",
    "input_tokens": "input_tokens_per_minute",
    "output_tokens": "output_tokens_per_minute",
    "concurrent": "concurrent_requests",
}


@dataclass(frozen=True, slots=True)
class LimitSubject:
    """The owner of limits, on all models or on one."""

    owner_id: str
    limits: RateLimitSettings
    model_id: str | None = None


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """One limit and how much of it is used now; None where that is unknown."""

    measure: Measure
    limit: int
    used: int | None

    @property
    def percent(self) -> int | None:
        """The used part in percent; a debt is more than 100."""
        return None if self.used is None else self.used * 100 // self.limit


def read_usage(subjects: Iterable[LimitSubject]) -> list[list[LimitUsage]]:
    """Return the limits of each subject, with how much of each is used."""
    limited = [_limited(subject) for subject in subjects]
    names = {name: measure for each in limited for name, measure, _ in each}
    counted = _read(names) if names else {}
    return [
        [
            LimitUsage(measure, limit, _used(counted.get(name), measure, limit))
            for name, measure, limit in each
        ]
        for each in limited
    ]


def _limited(subject: LimitSubject) -> list[tuple[str, Measure, int]]:
    found = []
    for measure in MEASURES:
        limit = getattr(subject.limits, FIGURE_OF[measure])
        if limit is not None:
            name = count_name(subject.owner_id, measure, subject.model_id)
            found.append((name, measure, limit))
    return found


@dataclass(frozen=True, slots=True)
class UsageCounter:
    """A Redis counter and the shared time at which it was read."""

    now: float
    value: Any


def _used(counted: UsageCounter | None, measure: Measure, limit: int) -> int | None:
    if counted is None:
        return None
    if measure != "concurrent":
        full_at = counted.now if counted.value is None else float(counted.value)
        return round(used(full_at, counted.now, limit))
    leases = (field.split() for field in counted.value.values())
    return sum(int(running) for running, until in leases if float(until) > counted.now)


def _read(names: Mapping[str, Measure]) -> dict[str, UsageCounter]:
    """Return the counters in Redis; none where it does not respond."""
    pipeline = _client().pipeline(transaction=False)
    pipeline.time()
    pipeline.hget(STATE, "offset")
    for name, measure in names.items():
        (pipeline.hgetall if measure == "concurrent" else pipeline.get)(name)
    try:
        time, offset, *values = pipeline.execute()
    except (redis.RedisError, OSError) as error:
        logger.warning("rate_limit_usage_unavailable", error=type(error).__name__)
        return {}
    now = shared_time(time[0], time[1], float(offset or 0))
    return {name: UsageCounter(now, value) for name, value in zip(names, values, strict=True)}


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.CONFIG.redis_url,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=WAIT_SECONDS,
        socket_connect_timeout=WAIT_SECONDS,
        protocol=2,
    )
