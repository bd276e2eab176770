"""Telling control that this gateway lives: how many do is what rate limits are divided by while
Redis is away. All hear the number by the change feed, and keep it while control is away too."""

import asyncio

import structlog

from serving.contract import limits
from serving.contract.limits import HEARTBEAT_SECONDS
from serving.contract.records import GatewayCountRecord
from serving.internal_http import InternalCallError
from serving.usage.internal import InternalApi

log = structlog.get_logger(__name__)

CALL_SECONDS = 2.0


class Presence:
    """Says it every few seconds; what is not heard is said again with the next."""

    def __init__(self, api: InternalApi, gateway_id: str) -> None:
        self._api = api
        self._gateway_id = gateway_id
        self._is_heard = True

    async def run(self) -> None:
        """Say it for ever."""
        while True:
            try:
                await self._tell(is_leaving=False)
                self._is_heard = True
            except InternalCallError as error:
                if self._is_heard:
                    log.warning("presence_not_heard", error=str(error))
                self._is_heard = False
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def leave(self) -> None:
        """Say that the others share what was ours from now on. Raises CallFailed."""
        await self._tell(is_leaving=True)

    async def _tell(self, *, is_leaving: bool) -> None:
        record = limits.GatewayHeartbeat(self._gateway_id, is_leaving)
        await self._api.post("gateways/heartbeat", record, GatewayCountRecord, CALL_SECONDS)
