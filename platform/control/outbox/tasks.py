"""What the worker does for the outbox."""

from functools import cache
from multiprocessing import get_context
from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down
from django.utils import timezone

from control.outbox import services
from control.outbox.worker import OutboxWorker

_stopping = get_context("fork").Event()
"""Set in the process that is told to end, seen in those that it forked, where tasks run."""


@cache
def deliverer() -> OutboxWorker:
    """Return this process's deliverer."""
    return OutboxWorker(stopping=_stopping)


@shared_task(name="outbox.deliver")
def deliver() -> None:
    """Deliver what is due; running twice delivers nothing twice."""
    deliverer().run()


@shared_task(name="outbox.trim")
def trim() -> int:
    """Delete what was delivered long ago."""
    return services.trim(now=timezone.now())


@worker_shutting_down.connect
def stop(**_: Any) -> None:
    """Let what is at work end, and begin nothing new."""
    _stopping.set()
