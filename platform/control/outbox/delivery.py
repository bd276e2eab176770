"""What handlers of outbox messages implement: the delivery they get, their retry policy, and their
errors; and the registry of handlers by kind."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib import import_module
from random import SystemRandom
from typing import Any

from django.apps import apps
from django.db import connection
from django.dispatch import Signal

MINUTE = timedelta(minutes=1)
JITTER = 0.2
"""A wait is up to this share longer, so that what failed together does not come back together."""
_random = SystemRandom()
given_up = Signal()
"""Sent in the transaction that gives a message up, with `message` (OutboxMessage), `is_alarm`
(whether operators are alarmed) and `now`. Nothing retries the message by itself."""


class DeliveryError(Exception):
    """A delivery that did not succeed. Any other exception of a handler is retried like this one.

    The reason is stored and shown to operators: it must hold no secret, link or content.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RetryAfter(DeliveryError):
    """Try again after `after`, however often it was tried, until the kind's time is over."""

    def __init__(self, after: timedelta, reason: str = "asked to come again later") -> None:
        super().__init__(reason)
        self.after = after


class PermanentFailure(DeliveryError):
    """It cannot succeed; an operator may retry it all the same."""


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


def without_transaction() -> None:
    """Give the connection back before a wait for the outside, which may be long."""
    if not connection.in_atomic_block:
        connection.close()


Handler = Callable[[Delivery], None]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
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


DEFAULT = RetryPolicy()


@cache
def registered(name: str) -> dict[str, Any]:
    """Return what the modules that apps name as `deliveries` hold under a name: DELIVERIES, the
    handler of each kind; POLICIES, its retry policy where the default does not fit."""
    found: dict[str, Any] = {}
    for config in apps.get_app_configs():
        if module := getattr(config, "deliveries", None):
            found |= getattr(import_module(module), name, {})
    return found


def handler_of(kind: str) -> Handler | None:
    """Return what delivers a kind, None where no app does."""
    return registered("DELIVERIES").get(kind)


def policy_of(kind: str) -> RetryPolicy:
    """Return how a kind is tried."""
    return registered("POLICIES").get(kind, DEFAULT)
