"""Control's internal HTTP API, as the gateway calls it: its clock, which database answers, and the
heartbeat.

A database that was restored has another lineage, and forgot things. Rate limits are
divided by the number of live gateways while Redis is away: all read it in the change feed, and keep
it while control is away too.
"""

import asyncio
from collections.abc import Callable

import aiohttp
import msgspec
import structlog

from serving.contract import limits
from serving.contract.limits import HEARTBEAT_SECONDS
from serving.contract.records import GatewayCountRecord
from serving.internal_http import InternalCallError, InternalHttpClient, Record
from serving.usage.clock import GatewayClock

log = structlog.get_logger(__name__)


class DatabaseIdentityCheck:
    """The lineage of billing's last answer, empty before the first; `remember` makes it last.

    Another one than before means that the database was restored from a backup: leases and usage
    that it does not know were lost with it.
    """

    def __init__(self, known: str, remember: Callable[[str], None]) -> None:
        self.known = known
        self.changes = 0
        self._remember = remember
        self._on_change: list[Callable[[], None]] = []

    def on_change(self, act: Callable[[], None]) -> None:
        """Call `act` whenever the lineage becomes another."""
        self._on_change.append(act)

    def observe(self, lineage: str) -> None:
        """Take in the lineage of an answer; empty says nothing."""
        before = self.known
        if lineage in ("", before):
            return
        self.known = lineage
        self._remember(lineage)
        if not before:
            return
        self.changes += 1
        log.error("billing_database_restored", lineage=lineage, before=before)
        for act in self._on_change:
            act()


class ControlApi(InternalHttpClient):
    """Tells the clock what time it is at control. `clock_ahead_count` is how often control would
    not listen because of this gateway's clock."""

    def __init__(
        self, session: aiohttp.ClientSession, control_url: str, credential: str, clock: GatewayClock
    ) -> None:
        super().__init__(session, f"{control_url}/internal/v1", credential)
        self.clock_ahead_count = 0
        self._control_url = control_url
        self._clock = clock

    def with_credential(self, credential: str) -> "ControlApi":
        """Return the same by another credential."""
        return ControlApi(self._session, self._control_url, credential, self._clock)

    async def post(
        self, name: str, record: msgspec.Struct, kind: type[Record], seconds: float
    ) -> Record:
        """Return what is answered within so many seconds. Raises InternalCallError."""
        try:
            return await super().post(name, record, kind, seconds)
        except InternalCallError as error:
            if error.status == 409 and error.says.startswith("clock_ahead"):
                self.clock_ahead_count += 1
                log.error("clock_ahead", call=name, reason=error.says)
            raise

    def observe_date(self, date: str | None, seconds: float) -> None:
        """Take in what time it is there."""
        self._clock.observe(date, seconds)


CALL_SECONDS = 2.0


class HeartbeatSender:
    """Says it every few seconds; what is not heard is said again with the next."""

    def __init__(self, api: ControlApi, gateway_id: str) -> None:
        self._api = api
        self._gateway_id = gateway_id
        self._is_heard = True

    async def run(self) -> None:
        """Say it for ever."""
        while True:
            try:
                await self._send(is_leaving=False)
                self._is_heard = True
            except InternalCallError as error:
                if self._is_heard:
                    log.warning("presence_not_heard", error=str(error))
                self._is_heard = False
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def send_leaving(self) -> None:
        """Say that the others share what was ours from now on. Raises InternalCallError."""
        await self._send(is_leaving=True)

    async def _send(self, *, is_leaving: bool) -> None:
        record = limits.GatewayHeartbeat(self._gateway_id, is_leaving)
        await self._api.post("gateways/heartbeat", record, GatewayCountRecord, CALL_SECONDS)
