"""Control's internal HTTP API, as the gateway calls it: a record there, a record back."""

from typing import TypeVar

import aiohttp
import msgspec
import structlog

from serving.contract.codec import ContractError, decode, encode
from serving.engine.transport.tls import as_payload
from serving.usage.clock import Clock

log = structlog.get_logger(__name__)

Record = TypeVar("Record", bound=msgspec.Struct)

CONNECT_SECONDS = 2.0
REASON_MAX = 200


class CallFailed(Exception):
    """No answer, or not a 200 with the record asked for; `status` is None without an answer."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class Refused(msgspec.Struct):
    """The body of an answer that is not 200."""

    error: str


class InternalApi:
    """Calls over the process's one session.

    `clock_ahead_count` is how often control would not listen because of this gateway's clock.
    """

    def __init__(
        self, session: aiohttp.ClientSession, control_url: str, credential: str, clock: Clock
    ) -> None:
        self.clock_ahead_count = 0
        self._clock = clock
        self._session = session
        self._base = f"{control_url}/internal/v1"
        self._headers = {
            "authorization": f"Bearer {credential}",
            "content-type": "application/json",
        }

    async def post(
        self, name: str, record: msgspec.Struct, kind: type[Record], seconds: float
    ) -> Record:
        """Return what is answered within so many seconds. Raises CallFailed."""
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._session.post(
                f"{self._base}/{name}",
                data=as_payload(encode(record)),
                headers=self._headers,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                self._clock.hear(answer.headers.get("date"))
                data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise CallFailed(f"{name}: {type(error).__name__}") from error
        if answer.status != 200:
            raise CallFailed(self._reason(name, answer.status, data), answer.status)
        try:
            return decode(data, kind)
        except ContractError as error:
            raise CallFailed(f"{name}: {error}", answer.status) from error

    def _reason(self, name: str, status: int, data: bytes) -> str:
        """Say in a line what an answer that is not 200 says."""
        try:
            says = decode(data, Refused).error[:REASON_MAX]
        except ContractError:
            says = ""
        if status == 409 and says.startswith("clock_ahead"):
            self.clock_ahead_count += 1
            log.error("clock_ahead", call=name, reason=says)
        return f"{name} answered {status} {says}".strip()
