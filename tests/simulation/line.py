"""The line to Stripe: stripe-python's own client asks the double in this process, and each question
and each answer is a point at which a call parks, or dies."""

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import stripe
from django.conf import settings
from django.db import connection

from billing.payments import stripe_api
from control.outbox import delivery
from tests.simulation.clock import CHANCE
from tests.simulation.schedule import pause
from tests.simulation.stripe_double import KEYS, Fault, Question, StripeDouble
from tests.simulation.stripe_double.faults import FaultKind

TROUBLE_SHARE = 0.1
AGAIN_SHARE = 0.6
"""How often a repeat fails too."""
LATE = "late"
LATE_SECONDS_MAX = 3 * 3600
"""No question is longer under way; `payments/` asks for 20 of the 24 hours that a key is known."""
TROUBLES: tuple[FaultKind | str, ...] = (
    "lost_before", "lost_after", "rate_limit", "server_error", "error_after", LATE,
)  # fmt: skip


class StripeLine(stripe.HTTPClient):
    """Carries questions to the double. What is `late` is never answered, and arrives after all."""

    name = "simulation"

    def __init__(self, double: StripeDouble) -> None:
        super().__init__()
        self.double = double
        self.is_calm = False
        self.late: list[tuple[Question, float]] = []
        """Questions with when they were sent."""
        self.posts: list[Question] = []
        self.inside: list[str] = []
        """What was asked inside of a transaction, as nothing may be."""
        self._last = threading.local()

    def request(  # type: ignore[override]
        self, method: str, url: str, headers: Mapping[str, str] | None, post_data: Any = None
    ) -> tuple[str, int, Mapping[str, str]]:
        """Ask the double, as HTTP would."""
        parts = urlsplit(url)
        is_post = method.lower() == "post"
        asked = Question(
            method.upper(), parts.path, post_data or "" if is_post else parts.query, headers or {}
        )
        if connection.in_atomic_block:
            self.inside.append(asked.path)
        if is_post:
            self.posts.append(asked)
        pause(f"asks Stripe {asked.method} {asked.path}")
        reply = self.double.answer(asked) if self._gets_through(asked) else None
        pause(f"hears from Stripe of {asked.path}")
        if reply is None:
            raise stripe.APIConnectionError(  # type: ignore[no-untyped-call]
                "no answer", should_retry=True
            )
        self._last.failed = reply.status >= 429
        return reply.body.decode(), reply.status, {}

    def let_arrive(self, count: int) -> None:
        """Let questions arrive that nobody waits for any more; those sent too long ago are lost."""
        arrived, self.late = self.late[:count], self.late[count:]
        for asked, sent_at in arrived:
            if self.double.clock() - sent_at <= LATE_SECONDS_MAX:
                self.double.answer(asked)

    def _gets_through(self, asked: Question) -> bool:
        """Decide what goes wrong with a question; return whether it reaches Stripe by now."""
        self.double.faults = []
        share = AGAIN_SHARE if getattr(self._last, "failed", False) else TROUBLE_SHARE
        if self.is_calm or CHANCE.source.random() >= share:
            self._last.failed = False
            return True
        self._last.failed = True
        kind = CHANCE.source.choice(TROUBLES)
        if kind == LATE:
            self.late.append((asked, self.double.clock()))
            return False
        self.double.faults = [Fault(kind, method=asked.method)]  # type: ignore[arg-type]
        return True

    def _sleep_time_seconds(self, num_retries: int) -> float:
        return 0.0


@contextmanager
def connected(line: StripeLine) -> Iterator[None]:
    """Let the services reach this Stripe instead of the real one."""
    api = stripe_api.StripeApi(KEYS, line=line)
    config = dataclasses.replace(settings.CONFIG, stripe=KEYS)
    waits = SimpleNamespace(
        uniform=lambda low, high: CHANCE.source.uniform(low, high)  # noqa: PLW0108 -- per thread
    )
    with ExitStack() as stack:
        stack.enter_context(patch.object(stripe_api, "_of", lambda keys: api))
        stack.enter_context(patch.object(settings, "CONFIG", config))
        stack.enter_context(patch.object(delivery, "_random", waits))
        yield
