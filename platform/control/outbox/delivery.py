"""One attempt to deliver a message, and how long and how often a kind is tried."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import SystemRandom
from typing import Any

from django.db import connection

MINUTE = timedelta(minutes=1)
JITTER = 0.2
"""A wait is up to this share longer, so that what failed together does not come back together."""

_random = SystemRandom()


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a handler gets. It may come twice, so `key` must make its effect unique."""

    kind: str
    key: str
    payload: dict[str, Any]
    organization_id: str | None
    attempt: int
    """1 at first."""
    now: datetime


def leave_database() -> None:
    """Give the connection back before a wait for the outside, which may be long."""
    if not connection.in_atomic_block:
        connection.close()


Handler = Callable[[Delivery], None]


@dataclass(frozen=True, slots=True)
class Policy:
    """How a kind is tried: after each failure the next of `waits`, the last one repeated.

    It is given up after `give_up_after`, or `attempts_max` attempts where that is set. An attempt
    that takes longer than `time_limit` counts as failed.
    """

    waits: tuple[timedelta, ...] = (
        timedelta(seconds=5),
        timedelta(seconds=30),
        2 * MINUTE,
        10 * MINUTE,
        30 * MINUTE,
        60 * MINUTE,
    )
    give_up_after: timedelta = timedelta(days=3)
    attempts_max: int | None = None
    time_limit: timedelta = timedelta(seconds=30)
    is_alarm: bool = True
    """Whether giving up is a matter for the operator."""

    def wait(self, attempt: int) -> timedelta:
        """Return how long to wait after the failure of an attempt (1 at first)."""
        wait = self.waits[min(attempt, len(self.waits)) - 1]
        return wait * (1 + _random.uniform(0, JITTER))

    def is_over(self, attempt: int, started_at: datetime, next_at: datetime) -> bool:
        """Tell whether the next attempt would be one too many, or too late."""
        too_often = self.attempts_max is not None and attempt >= self.attempts_max
        return too_often or next_at > started_at + self.give_up_after
