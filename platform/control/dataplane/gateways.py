"""Which credential owns which gateway, and which gateways are alive. The number of a credential may
change, its name may not."""

from collections.abc import Collection
from datetime import datetime, timedelta

import structlog
from django.db import transaction

from control.dataplane.models import GatewayHeartbeat, GatewayOwner
from control.errors import NotPermitted
from control.feed.selectors import last_record
from control.feed.services import FeedRecord, publish
from serving.contract.codec import encode
from serving.contract.credential import Caller
from serving.contract.presence import MISSED_SECONDS
from serving.contract.records import FleetSizeRecord

log = structlog.get_logger(__name__)


def name_gateway(caller: Caller, gateway_id: str) -> None:
    """Note that a living gateway is the caller's, for good. Raises NotPermitted where it is
    another's."""
    GatewayOwner.objects.get_or_create(gateway_id=gateway_id, defaults={"name": caller.name})
    require_ownership(caller, [gateway_id])


def require_ownership(caller: Caller, gateway_ids: Collection[str]) -> None:
    """Raise NotPermitted where one of these gateways is another's than the caller's."""
    for gateway_id, name in sorted(owned_by_others(caller, gateway_ids).items()):
        log.warning("internal_call_refused", caller=str(caller), gateway_id=gateway_id, of=name)
        raise NotPermitted(
            f"{gateway_id} is the gateway {name}: {caller.name}'s credential may not speak for it"
        )


def owned_by_others(caller: Caller, gateway_ids: Collection[str]) -> dict[str, str]:
    """Return which of these gateways are known by another name than the caller's, and by which.

    Who was never alive under any name is nobody's: what a gateway of before left is told by
    whoever finds it.
    """
    rows = GatewayOwner.objects.filter(gateway_id__in=gateway_ids).exclude(name=caller.name)
    return dict(rows.values_list("gateway_id", "name"))


@transaction.atomic
def record_heartbeat(*, gateway_id: str, is_leaving: bool, now: datetime) -> int:
    """A gateway lives, or leaves; return how many do. All hear of another number."""
    if is_leaving:
        GatewayHeartbeat.objects.filter(gateway_id=gateway_id).delete()
    else:
        GatewayHeartbeat.objects.update_or_create(gateway_id=gateway_id, defaults={"seen_at": now})
    GatewayHeartbeat.objects.filter(seen_at__lt=now - timedelta(seconds=MISSED_SECONDS)).delete()
    count = GatewayHeartbeat.objects.count()
    record = FleetSizeRecord(count)
    if last_record("fleet_size", "all") != encode(record).decode():
        publish([FeedRecord("fleet_size", "all", record)])
    return count
