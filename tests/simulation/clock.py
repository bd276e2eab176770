"""Time and chance, as a seed says: the services' own sources of both are replaced while it runs."""

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace
from unittest.mock import patch

from django.utils import timezone

from control.db import models as control_ids
from control.db import retries
from control.feed import database_identity
from control.outbox import services
from serving.contract import ids as contract_ids

EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Clock:
    """The one clock of the simulated world; it moves when a step says so."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


class Chance(threading.local):
    """A thread's own randomness: what it draws depends on its call, never on other threads."""

    def __init__(self) -> None:
        self.source = random.Random(0)

    def reseed(self, seed: object) -> None:
        """Begin a sequence that follows from `seed` alone."""
        self.source = random.Random(str(seed))


CHANCE = Chance()


def milliseconds(at: datetime) -> int:
    """Return a moment as whole milliseconds since 1970."""
    return (at - EPOCH) // timedelta(milliseconds=1)


@contextmanager
def ruled_by(clock: Clock) -> Iterator[None]:
    """Let the services see this clock and the seed's chance instead of the real ones."""
    secrets = SimpleNamespace(
        randbits=lambda bits: CHANCE.source.getrandbits(bits),  # noqa: PLW0108 -- per thread
        choice=lambda items: CHANCE.source.choice(items),  # noqa: PLW0108
    )
    wall = SimpleNamespace(
        time_ns=lambda: milliseconds(clock.now) * 1_000_000,
        monotonic=lambda: 0.0,
        sleep=lambda _: None,
    )
    with ExitStack() as stack:
        stack.enter_context(patch.object(timezone, "now", lambda: clock.now))
        stack.enter_context(patch.object(services, "wake", lambda: None))
        for module in (contract_ids, database_identity, retries):
            stack.enter_context(patch.object(module, "time", wall))
        for module in (contract_ids, control_ids):
            stack.enter_context(patch.object(module, "secrets", secrets))
        yield
