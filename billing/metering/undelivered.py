"""A message that the outbox gave up is an alarm of its organization, or of the operator."""

from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from billing.metering.alarms import OPERATOR, raise_alarms
from control.outbox.delivery import given_up
from control.outbox.models import OutboxMessage


def listen() -> None:
    """Hear of every message that is given up."""
    given_up.connect(tell, dispatch_uid="metering.undelivered")


def tell(*, message: OutboxMessage, is_alarm: bool, now: datetime, **_: Any) -> None:
    """Count the alarm once the message is given up for good."""
    if not is_alarm:
        return
    owner = message.organization_id or OPERATOR
    alarm = {(owner, "outbox_message_abandoned"): 1}
    transaction.on_commit(partial(raise_alarms, alarm, now=now), robust=True)
