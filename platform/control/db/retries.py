"""Retries of a transaction that lost against another one."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
from django.db import OperationalError

ATTEMPTS_MAX = 5
RETRIED_STATES = frozenset({"40001", "40P01", "55P03"})
"""Serialization failure, deadlock, lock not available."""

Result = TypeVar("Result")
logger = structlog.get_logger(__name__)


def with_retries(work: Callable[[], Result]) -> Result:
    """Run a transaction, up to five times where PostgreSQL refuses it for another one's sake: the
    waits grow from 0.02 to 0.8 s. Raises the last OperationalError."""
    for attempt in range(1, ATTEMPTS_MAX):
        try:
            return work()
        except OperationalError as error:
            state = getattr(error.__cause__, "sqlstate", None)
            if state not in RETRIED_STATES:
                raise
            logger.warning("transaction_retried", attempt=attempt, state=state)
            time.sleep(random.uniform(0.01, 0.05) * 2**attempt)  # noqa: S311 -- jitter
    return work()
