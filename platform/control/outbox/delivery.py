"""The interface of outbox handlers: the delivery that they receive, their retry policy and errors,
and the registry of handlers by kind."""

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
"""A wait is up to this share longer, so that messages that failed together are not retried
together."""
_random = SystemRandom()
given_up = Signal()
"""Sent in the transaction that gives a message up, with `message` (OutboxMessage), `is_alarm`
(whether operators are alerted) and `now`. The message is not retried automatically."""


class DeliveryError(Exception):
    """A failed delivery. Any other exception of a handler is retried like this one.

    The reason is stored and shown to operators: it must hold no secret, link or content.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RetryAfter(DeliveryError):
    """Retry after `after`, regardless of the number of attempts, until the kind's time is over."""

    def __init__(self, after: timedelta, reason: str = "asked to come again later") -> None:
        super().__init__(reason)
        self.after = after


class PermanentFailure(DeliveryError):
    """The delivery cannot succeed; an operator may retry it anyway."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The input of a handler. It may come twice, so `key` must make its effect unique."""

    kind: str
    key: str
    payload: dict[str, Any]
    organization_id: str | None
    attempt: int
    """Counted from 1."""
    now: datetime


def without_transaction() -> None:
    """Return the connection to the pool before a possibly long call to an external service."""
    if not connection.in_atomic_block:
        connection.close()


Handler = Callable[[Delivery], None]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retries of a kind: after each failure the next of `waits`, the last one repeated.

    A message is given up after `give_up_after`, or `attempts_max` attempts where that is set. An
    attempt that takes longer than `time_limit` counts as failed.
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
    """Whether giving up alerts the operators."""

    def wait(self, attempt: int) -> timedelta:
        """Return the wait after the failure of an attempt (counted from 1)."""
        wait = self.waits[min(attempt, len(self.waits)) - 1]
        return wait * (1 + _random.uniform(0, JITTER))

    def is_over(self, attempt: int, started_at: datetime, next_at: datetime) -> bool:
        """Tell whether the next attempt would be one too many, or too late."""
        too_often = self.attempts_max is not None and attempt >= self.attempts_max
        return too_often or next_at > started_at + self.give_up_after


DEFAULT = RetryPolicy()


@cache
def registered(name: str) -> dict[str, Any]:
    """Return the merged dictionaries of a name in the modules that apps name as `deliveries`:
    DELIVERIES, the handler of each kind; POLICIES, its retry policy if not the default."""
    found: dict[str, Any] = {}
    for config in apps.get_app_configs():
        if module := getattr(config, "deliveries", None):
            found |= getattr(import_module(module), name, {})
    return found


def handler_of(kind: str) -> Handler | None:
    """Return the handler of a kind; None where no app has one."""
    return registered("DELIVERIES").get(kind)


def policy_of(kind: str) -> RetryPolicy:
    """Return the retry policy of a kind."""
    return registered("POLICIES").get(kind, DEFAULT)
