"""Control's internal HTTP API, as the gateway calls it."""

import aiohttp
import msgspec
import structlog

from serving.internal_http import InternalCallError, InternalHttpClient, Record
from serving.usage.clock import Clock

log = structlog.get_logger(__name__)


class InternalApi(InternalHttpClient):
    """Tells the clock what time it is at control. `clock_ahead_count` is how often control would
    not listen because of this gateway's clock."""

    def __init__(
        self, session: aiohttp.ClientSession, control_url: str, credential: str, clock: Clock
    ) -> None:
        super().__init__(session, f"{control_url}/internal/v1", credential)
        self.clock_ahead_count = 0
        self._control_url = control_url
        self._clock = clock

    def showing(self, credential: str) -> "InternalApi":
        """Return the same by another credential."""
        return InternalApi(self._session, self._control_url, credential, self._clock)

    async def post(
        self, name: str, record: msgspec.Struct, kind: type[Record], seconds: float
    ) -> Record:
        """Return what is answered within so many seconds. Raises CallFailed."""
        try:
            return await super().post(name, record, kind, seconds)
        except InternalCallError as error:
            if error.status == 409 and error.says.startswith("clock_ahead"):
                self.clock_ahead_count += 1
                log.error("clock_ahead", call=name, reason=error.says)
            raise

    def note_date(self, date: str | None, seconds: float) -> None:
        """Hear what time it is there."""
        self._clock.hear(date, seconds)
