"""A replica that failed is an alarm of the operator."""

from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from billing.metering.alarms import OPERATOR, raise_alarms
from control.catalog.services import replica_failed


def listen() -> None:
    """Hear of every replica that fails."""
    replica_failed.connect(tell, dispatch_uid="metering.failed_replicas")


def tell(*, now: datetime, **_: Any) -> None:
    """Count the alarm once the failure is kept."""
    alarm = {(OPERATOR, "replica_failed"): 1}
    transaction.on_commit(partial(raise_alarms, alarm, now=now), robust=True)
