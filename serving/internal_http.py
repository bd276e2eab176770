"""Calls of another process's internal API: a record posted, a record back, and how long to wait
before a call that failed is repeated."""

import io
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
import msgspec

from serving.contract.codec import ContractError, decode, encode

DOUBLINGS_MAX = 10


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from `first_seconds` with each failure in a row, up to `max_seconds`; of that half
    is left to chance, so that many who failed together do not come back together."""

    first_seconds: float
    max_seconds: float
    jitter: Callable[[], float] = random.random

    def pause_seconds(self, failures_in_a_row: int) -> float:
        """Return how long to wait after so many failures, at least one."""
        doubled = self.first_seconds * 2 ** min(failures_in_a_row - 1, DOUBLINGS_MAX)
        return min(self.max_seconds, doubled) * (0.5 + self.jitter() / 2)


Record = TypeVar("Record", bound=msgspec.Struct)

CONNECT_SECONDS = 2.0
LARGE_BYTES = 1024 * 1024
REASON_MAX = 200


class InternalCallError(Exception):
    """No answer, or not a 200 with the record asked for; `status` is None without an answer, and
    `says` and `code` are what an answer that is not 200 gives as its reason, in words and for
    programs."""

    def __init__(
        self, reason: str, status: int | None = None, says: str = "", code: str = ""
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.says = says
        self.code = code


class InternalErrorBody(msgspec.Struct):
    """The body of an answer that is not 200."""

    error: str
    code: str = ""


class InternalHttpClient:
    """Calls what is under an address, over the process's one session and by one credential."""

    def __init__(self, session: aiohttp.ClientSession, address: str, credential: str) -> None:
        self._session = session
        self._address = address
        self._headers = {
            "authorization": f"Bearer {credential}",
            "content-type": "application/json",
        }

    async def post(
        self, name: str, record: msgspec.Struct, kind: type[Record], seconds: float
    ) -> Record:
        """Return what is answered within so many seconds. Raises InternalCallError."""
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        began = time.monotonic()
        try:
            async with self._session.post(
                f"{self._address}/{name}",
                data=_payload(encode(record)),
                headers=self._headers,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                self.observe_date(answer.headers.get("date"), time.monotonic() - began)
                data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise InternalCallError(f"{name}: {type(error).__name__}") from error
        if answer.status != 200:
            refusal = _refusal(data)
            says = refusal.error[:REASON_MAX]
            reason = f"{name} answered {answer.status} {says}".strip()
            raise InternalCallError(reason, answer.status, says, refusal.code)
        try:
            return decode(data, kind)
        except ContractError as error:
            raise InternalCallError(f"{name}: {error}", answer.status) from error

    def observe_date(self, date: str | None, seconds: float) -> None:
        """Hear when an answer was given to a call that took so long, for whoever wants to know."""


def _payload(data: bytes) -> aiohttp.BytesPayload | io.BytesIO:
    """Return bytes as aiohttp likes them: more than a megabyte goes out in pieces."""
    if len(data) > LARGE_BYTES:
        return io.BytesIO(data)
    return aiohttp.BytesPayload(data, content_type="application/json")


def _refusal(data: bytes) -> InternalErrorBody:
    """Return what an answer that is not 200 says."""
    try:
        return decode(data, InternalErrorBody)
    except ContractError:
        return InternalErrorBody("")
