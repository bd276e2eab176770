"""The control plane's periodic tasks and their intervals. Each may run twice: the second run finds
nothing left to do."""

from datetime import timedelta
from functools import cache
from multiprocessing import get_context
from typing import Any

from celery import shared_task
from celery.schedules import crontab
from celery.signals import worker_shutting_down
from django.utils import timezone

from control.accounts import sessions
from control.api.idempotency import purge_requests
from control.audit import hash_chain
from control.catalog import services as catalog
from control.data_requests import services as data_requests
from control.dataplane import failed_requests, idempotency
from control.feed.services import compact
from control.limits import usage_tiers
from control.mail import backend
from control.outbox import services as outbox
from control.outbox.delivery import OutboxWorker
from control.webhooks import services as webhooks

FEED_RETENTION = timedelta(hours=24)
"""A feed reader that was offline for longer starts again from a snapshot."""
HOUR = 3600

_stopping = get_context("fork").Event()
"""Set in the process that is shut down, seen in its forks, where tasks run."""


def _every(seconds: float, task: str) -> dict[str, Any]:
    """Return an entry of the schedule; a run that has not begun by the next one is dropped."""
    return {"task": task, "schedule": seconds, "options": {"expires": seconds}}


SCHEDULE = {
    "chain audit events": _every(5, "audit.chain_events"),
    "verify the audit log": _every(HOUR, "audit.verify_chain"),
    "deliver outbox messages": _every(5, "outbox.deliver"),
    "purge outbox messages": _every(HOUR, "outbox.purge"),
    "compact the feed": {"task": "feed.compact", "schedule": crontab(minute="17")},
    "note failed replicas": _every(30, "catalog.note_failures"),
    "note loaded weights": _every(30, "catalog.note_weights"),
    "update usage tiers": _every(60, "limits.update_usage_tiers"),
    "run data requests": _every(5, "data_requests.run_pending"),
    "purge exports": _every(HOUR, "data_requests.purge_exports"),
    "purge idempotency keys": _every(600, "idempotency.purge"),
    "purge failed requests": _every(HOUR, "failed_requests.purge"),
    "purge idempotent requests": _every(HOUR, "api.purge_requests"),
    "purge sessions": _every(HOUR, "accounts.purge_sessions"),
    "purge stored emails": _every(HOUR, "mail.purge"),
    "purge webhooks": _every(HOUR, "webhooks.purge"),
}
"""Enqueuing an outbox message also wakes the worker; the schedule finds messages that were delayed
or whose wake-up was lost."""


@shared_task(name="audit.chain_events")
def chain_audit_events() -> int:
    """Add new audit events to the hash chain; return how many."""
    return hash_chain.chain_events()


@shared_task(name="audit.verify_chain", soft_time_limit=1800, time_limit=1860)
def verify_audit_log() -> None:
    """Verify the hash chain; errors raise an alarm."""
    hash_chain.verify_chain(now=timezone.now())


@cache
def outbox_worker() -> OutboxWorker:
    """Return this process's outbox worker."""
    return OutboxWorker(stopping=_stopping)


@shared_task(name="outbox.deliver")
def deliver_outbox() -> None:
    """Deliver the outbox messages that are due."""
    outbox_worker().run()


@worker_shutting_down.connect
def stop_outbox(**_: Any) -> None:
    """Finish the deliveries in progress and start no more."""
    _stopping.set()


@shared_task(name="outbox.purge")
def purge_outbox() -> int:
    """Delete messages that were delivered long ago; return how many."""
    return outbox.trim(now=timezone.now())


@shared_task(name="feed.compact")
def compact_feed() -> int:
    """Remove changes that later ones replaced; return how many."""
    return compact(before=timezone.now() - FEED_RETENTION)


@shared_task(name="catalog.note_failures")
def note_replica_failures() -> int:
    """Keep what the fleet says of replicas that failed; return how many are new."""
    return catalog.note_failures(now=timezone.now())


@shared_task(name="catalog.note_weights")
def note_weights() -> int:
    """Fix the digest of weights that a fleet loaded for the first time; return how many."""
    return catalog.note_weights()


@shared_task(name="limits.update_usage_tiers")
def update_usage_tiers() -> int:
    """Move organizations to the usage tier that their payments qualify for; return how many."""
    return usage_tiers.update_usage_tiers(now=timezone.now())


@shared_task(name="data_requests.run_pending")
def run_data_requests() -> None:
    """Run the exports and erasures that wait."""
    data_requests.run_pending(now=timezone.now())


@shared_task(name="data_requests.purge_exports")
def purge_exports() -> None:
    """Delete exports that are a week old."""
    data_requests.purge(now=timezone.now())


@shared_task(name="idempotency.purge")
def purge_idempotency_keys() -> int:
    """Delete gateways' idempotency keys and stored responses of over a day ago."""
    return idempotency.purge(now=timezone.now())


@shared_task(name="failed_requests.purge")
def purge_failed_requests() -> int:
    """Delete inference requests that failed over 30 days ago."""
    return failed_requests.purge(now=timezone.now())


@shared_task(name="api.purge_requests")
def purge_idempotent_requests() -> int:
    """Delete the management API's idempotent requests of over a day ago."""
    return purge_requests(now=timezone.now())


@shared_task(name="accounts.purge_sessions")
def purge_sessions() -> None:
    """Delete sessions that expired."""
    sessions.purge_sessions(now=timezone.now())


@shared_task(name="mail.purge")
def purge_stored_emails() -> int:
    """Delete old emails of the local mailbox."""
    return backend.trim(now=timezone.now())


@shared_task(name="webhooks.purge")
def purge_webhooks() -> int:
    """Delete webhook deliveries of over 60 days ago."""
    return webhooks.purge(now=timezone.now())
