"""Keeps what the fleet says of replicas that failed, which it forgets within minutes."""

from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import QuerySet
from django.dispatch import Signal

from control.catalog.fleet_status import fleet_status
from control.catalog.models import FAILURE_REASON_MAX, Deployment, ReplicaFailure
from serving.contract.codec import storable

KEPT = timedelta(days=90)
replica_failed = Signal()
"""Sent once for each failure, in the transaction that keeps it, with `failure` (ReplicaFailure) and
`now`."""

logger = structlog.get_logger(__name__)


def note_failures(*, now: datetime) -> int:
    """Keep each failure that the fleet reports and is not known yet; return how many."""
    ReplicaFailure.objects.filter(noticed_at__lt=now - KEPT).delete()
    failed = [each for each in fleet_status().replicas if each.state == "failed"]
    known = set(
        Deployment.objects.filter(id__in={each.deployment_id for each in failed}).values_list(
            "id", flat=True
        )
    )
    return sum(
        _note(
            ReplicaFailure(
                replica_id=each.replica_id,
                deployment_id=each.deployment_id,
                reason=storable(each.reason)[:FAILURE_REASON_MAX],
                started_at=each.started_at,
                noticed_at=now,
            )
        )
        for each in failed
        if each.deployment_id in known
    )


def failures(deployment: Deployment | None = None) -> QuerySet[ReplicaFailure]:
    """Return the failures of a deployment's replicas, or all of them, the newest first."""
    found = ReplicaFailure.objects.select_related("deployment__variant__model")
    return found if deployment is None else found.filter(deployment=deployment)


@transaction.atomic
def _note(failure: ReplicaFailure) -> bool:
    """Keep a failure, unless it is known; tell whether it is new."""
    fields = ("deployment_id", "reason", "started_at", "noticed_at")
    values = {field: getattr(failure, field) for field in fields}
    kept, is_new = ReplicaFailure.objects.get_or_create(
        replica_id=failure.replica_id, defaults=values
    )
    if is_new:
        logger.warning(
            "replica_failure_noted",
            replica_id=kept.replica_id,
            deployment_id=kept.deployment_id,
            reason=kept.reason,
        )
        replica_failed.send(ReplicaFailure, failure=kept, now=kept.noticed_at)
    return is_new
