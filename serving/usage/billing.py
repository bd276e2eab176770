"""Billing's internal HTTP API, as the gateway calls it."""

from typing import TypeVar

import aiohttp
import msgspec

from serving.contract.codec import ContractError, decode, encode
from serving.contract.lease import LeaseReply, LeaseRequest
from serving.contract.usage import UsageBatch, UsageReceipt
from serving.engine.client import as_payload
from serving.usage.ship import ShipmentFailed
from serving.usage.treasury import BillingUnreachable

Record = TypeVar("Record", bound=msgspec.Struct)

LEASE_SECONDS = 2.0
SHIP_SECONDS = 30.0
CONNECT_SECONDS = 2.0


class CallFailed(Exception):
    """No answer, or not a 200 with the record asked for; `status` is None without an answer."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class Billing:
    """Leases and usage events over the process's one session."""

    def __init__(self, session: aiohttp.ClientSession, control_url: str, secret: str) -> None:
        self._session = session
        self._base = f"{control_url}/internal/v1"
        self._headers = {
            "authorization": f"Bearer {secret}",
            "content-type": "application/json",
        }

    async def leases(self, request: LeaseRequest) -> LeaseReply:
        """Exchange asks and returns for answers and recalls. Raises BillingUnreachable."""
        try:
            return await self._post("leases", request, LeaseReply, LEASE_SECONDS)
        except CallFailed as error:
            raise BillingUnreachable(str(error)) from error

    async def usage_events(self, batch: UsageBatch) -> UsageReceipt:
        """Hand a batch over. Raises ShipmentFailed."""
        try:
            return await self._post("usage-events", batch, UsageReceipt, SHIP_SECONDS)
        except CallFailed as error:
            raise ShipmentFailed(str(error), too_big=error.status in (400, 413)) from error

    async def _post(
        self, name: str, record: msgspec.Struct, kind: type[Record], seconds: float
    ) -> Record:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._session.post(
                f"{self._base}/{name}",
                data=as_payload(encode(record)),
                headers=self._headers,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise CallFailed(f"{name}: {type(error).__name__}") from error
        if answer.status != 200:
            raise CallFailed(f"{name} answered {answer.status}", answer.status)
        try:
            return decode(data, kind)
        except ContractError as error:
            raise CallFailed(f"{name}: {error}", answer.status) from error
