"""What the outbox tells control, at once."""

from billing.credit.standing import PAID, tell_paid
from control.outbox.delivery import Delivery, Handler


def _paid(delivery: Delivery) -> None:
    if delivery.organization_id is not None:
        tell_paid(delivery.organization_id, now=delivery.now)


DELIVERIES: dict[str, Handler] = {PAID: _paid}
