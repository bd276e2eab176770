"""Owners of gateways by credential, and the gateways that are alive. The number of a credential may
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
from serving.contract.credential import ServiceIdentity
from serving.contract.limits import HEARTBEAT_MISSED_SECONDS
from serving.contract.records import GatewayCountRecord

log = structlog.get_logger(__name__)


def name_gateway(caller: ServiceIdentity, gateway_id: str) -> None:
    """Record permanently that a live gateway belongs to the caller. Raises NotPermitted if it
    belongs to another."""
    GatewayOwner.objects.get_or_create(gateway_id=gateway_id, defaults={"name": caller.name})
    require_ownership(caller, [gateway_id])


def require_ownership(caller: ServiceIdentity, gateway_ids: Collection[str]) -> None:
    """Raise NotPermitted if one of these gateways belongs to another caller."""
    for gateway_id, name in sorted(owned_by_others(caller, gateway_ids).items()):
        log.warning("internal_request_denied", caller=str(caller), gateway_id=gateway_id, of=name)
        raise NotPermitted(
            f"{gateway_id} is the gateway {name}: {caller.name}'s credential may not speak for it"
        )


def owned_by_others(caller: ServiceIdentity, gateway_ids: Collection[str]) -> dict[str, str]:
    """Return those of these gateways that belong to another name, with that name.

    A gateway that was never alive under any name belongs to nobody: any caller may report what it
    left behind.
    """
    rows = GatewayOwner.objects.filter(gateway_id__in=gateway_ids).exclude(name=caller.name)
    return dict(rows.values_list("gateway_id", "name"))


@transaction.atomic
def record_heartbeat(*, gateway_id: str, is_leaving: bool, now: datetime) -> int:
    """Record that a gateway is alive or leaving; return the number of live ones, published when it
    changes."""
    if is_leaving:
        GatewayHeartbeat.objects.filter(gateway_id=gateway_id).delete()
    else:
        GatewayHeartbeat.objects.update_or_create(gateway_id=gateway_id, defaults={"seen_at": now})
    GatewayHeartbeat.objects.filter(
        seen_at__lt=now - timedelta(seconds=HEARTBEAT_MISSED_SECONDS)
    ).delete()
    count = GatewayHeartbeat.objects.count()
    record = GatewayCountRecord(count)
    if last_record("fleet_size", "all") != encode(record).decode():
        publish([FeedRecord("fleet_size", "all", record)])
    return count
