"""What the outbox has looked at, at once."""

from billing.collection.following import LOOK
from billing.collection.services.looking import look_at
from control.outbox.delivery import Delivery, Handler


def _look(delivery: Delivery) -> None:
    if delivery.organization_id is not None:
        look_at(delivery.organization_id, now=delivery.now)


DELIVERIES: dict[str, Handler] = {LOOK: _look}
