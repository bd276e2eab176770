"""Telling the worker that webhooks wait, at most once a second; the beat finds them anyway."""

import time
from threading import Lock, Thread

import structlog

EVERY_SECONDS = 1

logger = structlog.get_logger(__name__)
_lock = Lock()
_last: float = 0


def wake() -> None:
    """Have the worker look at the inbox. Returns at once, whatever the broker does."""
    global _last  # noqa: PLW0603 -- one clock of this process
    with _lock:
        if time.monotonic() - _last < EVERY_SECONDS:
            return
        _last = time.monotonic()
    Thread(target=_send, name="stripe-inbox", daemon=True).start()


def _send() -> None:
    from billing.payments.tasks import process_events

    try:
        process_events.apply_async(countdown=EVERY_SECONDS, retry=False, expires=60)
    except Exception as error:
        logger.warning("inbox_not_woken", error=type(error).__name__)
