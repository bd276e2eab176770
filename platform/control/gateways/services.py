"""Who may speak for which gateway. A credential's number may change, its name may not."""

from collections.abc import Collection

import structlog

from control.errors import NotPermitted
from control.gateways.models import NamedGateway
from serving.contract.credential import Caller

log = structlog.get_logger(__name__)


def name_gateway(caller: Caller, gateway_id: str) -> None:
    """Note that a living gateway is the caller's, for good. Raises NotPermitted where it is
    another's."""
    NamedGateway.objects.get_or_create(gateway_id=gateway_id, defaults={"name": caller.name})
    require_own(caller, [gateway_id])


def require_own(caller: Caller, gateway_ids: Collection[str]) -> None:
    """Raise NotPermitted where one of these gateways is another's than the caller's."""
    for gateway_id, name in sorted(of_others(caller, gateway_ids).items()):
        log.warning("internal_call_refused", caller=str(caller), gateway_id=gateway_id, of=name)
        raise NotPermitted(
            f"{gateway_id} is the gateway {name}: {caller.name}'s credential may not speak for it"
        )


def of_others(caller: Caller, gateway_ids: Collection[str]) -> dict[str, str]:
    """Return which of these gateways are known by another name than the caller's, and by which.

    Who was never alive under any name is nobody's: what a gateway of before left is told by
    whoever finds it.
    """
    rows = NamedGateway.objects.filter(gateway_id__in=gateway_ids).exclude(name=caller.name)
    return dict(rows.values_list("gateway_id", "name"))
