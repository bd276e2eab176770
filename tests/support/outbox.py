"""The outbox under test: handlers of one's own, and messages for them."""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from django.db import transaction

from control.outbox import registry
from control.outbox.delivery import Handler, Policy
from control.outbox.models import Message
from control.outbox.services import enqueue

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
_numbers = itertools.count(1)


def delivering(
    handlers: dict[str, Handler], policies: dict[str, Policy] | None = None
) -> AbstractContextManager[Any]:
    """Deliver by these handlers instead of the apps'."""
    found = {"DELIVERIES": handlers, "POLICIES": policies or {}}
    return patch.object(registry, "registered", lambda name: found[name])


def put(kind: str = "note", key: str = "", now: datetime = NOW, **fields: Any) -> Message:
    """Enqueue a message in a transaction of its own."""
    values = {"payload": {}, "organization_id": None, **fields}
    key = key or f"key {next(_numbers)}"
    with transaction.atomic():
        enqueue(kind=kind, key=key, now=now, **values)
    return Message.objects.get(kind=kind, key=key)


def failing(error: Exception) -> Callable[[object], None]:
    """Return a handler that always fails."""

    def fail(_: object) -> None:
        raise error

    return fail
