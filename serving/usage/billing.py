"""Billing's part of the internal HTTP API."""

from serving.contract.lease import LeaseReply, LeaseRequest
from serving.contract.usage import UsageBatch, UsageReceipt
from serving.internal_http import InternalCallError
from serving.usage.internal import InternalApi
from serving.usage.ship import ShipmentFailed
from serving.usage.treasury import BillingUnreachable

LEASE_SECONDS = 2.0
SHIP_SECONDS = 30.0


class Billing:
    """Leases and usage events."""

    def __init__(self, api: InternalApi) -> None:
        self._api = api

    async def leases(self, request: LeaseRequest) -> LeaseReply:
        """Exchange asks and returns for answers and recalls. Raises BillingUnreachable."""
        try:
            return await self._api.post("leases", request, LeaseReply, LEASE_SECONDS)
        except InternalCallError as error:
            raise BillingUnreachable(str(error)) from error

    async def usage_events(self, batch: UsageBatch) -> UsageReceipt:
        """Hand a batch over. Raises ShipmentFailed."""
        try:
            return await self._api.post("usage-events", batch, UsageReceipt, SHIP_SECONDS)
        except InternalCallError as error:
            raise ShipmentFailed(str(error), too_big=error.status in (400, 413)) from error
