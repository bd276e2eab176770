"""Reporting: a sample of every engine each minute, sent to billing until it is acknowledged."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Never

import aiohttp
import structlog

from serving.contract.codec import ContractError, decode, encode
from serving.contract.counters import SAMPLES_MAX, CountersReply, CountersRequest
from serving.fleet.fleet import Fleet

log = structlog.get_logger(__name__)

COUNTERS_PATH = "/internal/v1/engine-counters"
CONNECT_SECONDS = 2.0
SEND_SECONDS = 10.0
BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_MAX_SECONDS = 30.0

Send = Callable[[CountersRequest], Awaitable[CountersReply]]
"""One call to billing. Raises NotReported."""


class NotReported(Exception):
    """Billing did not acknowledge; the message says what it did instead."""


class Reporter:
    """Empties the fleet's samples into billing."""

    def __init__(
        self, fleet: Fleet, send: Send, *, jitter: Callable[[], float] = random.random
    ) -> None:
        self.reported_count = 0
        self.failure_count = 0
        self._fleet = fleet
        self._send = send
        self._jitter = jitter

    async def sample_forever(self) -> Never:
        """Take samples at each full minute (`sample_seconds`) of the wall clock."""
        seconds = self._fleet.config.timings.sample_seconds
        while True:
            await asyncio.sleep(seconds - time.time() % seconds)
            self._fleet.sample()

    async def report_forever(self) -> Never:
        """Report whatever arrives; an outage is waited out with jitter."""
        failures_in_a_row = 0
        while True:
            await self._fleet.samples.arrived.wait()
            try:
                await self.report()
                failures_in_a_row = 0
            except NotReported as error:
                failures_in_a_row += 1
                self.failure_count += 1
                log.warning("engine_samples_not_sent", error=str(error), in_a_row=failures_in_a_row)
                await asyncio.sleep(self._pause_seconds(failures_in_a_row))

    async def report(self) -> None:
        """Report until nothing is left. Raises NotReported."""
        samples = self._fleet.samples
        while batch := samples.oldest(SAMPLES_MAX):
            await self._send(CountersRequest(self._fleet.fleet_id, batch))
            samples.forget(batch)
            self.reported_count += len(batch)

    def _pause_seconds(self, failures_in_a_row: int) -> float:
        doubled = BACKOFF_FIRST_SECONDS * 2 ** min(failures_in_a_row - 1, 10)
        return min(BACKOFF_MAX_SECONDS, doubled) * (0.5 + self._jitter() / 2)


class HttpSend:
    """Posts samples to control's internal API."""

    def __init__(self, session: aiohttp.ClientSession, control_url: str, credential: str) -> None:
        self._session = session
        self._url = control_url + COUNTERS_PATH
        self._headers = {
            "authorization": f"Bearer {credential}",
            "content-type": "application/json",
        }

    async def __call__(self, request: CountersRequest) -> CountersReply:
        """Hand samples over. Raises NotReported."""
        timeout = aiohttp.ClientTimeout(total=SEND_SECONDS, sock_connect=CONNECT_SECONDS)
        try:
            async with self._session.post(
                self._url,
                data=encode(request),
                headers=self._headers,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotReported(f"{self._url}: {type(error).__name__}: {error}") from error
        if answer.status != 200:
            raise NotReported(f"{self._url} answered {answer.status}")
        try:
            return decode(data, CountersReply)
        except ContractError as error:
            raise NotReported(str(error)) from error
