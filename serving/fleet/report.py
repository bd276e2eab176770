"""Reporting: a sample of every engine each minute, sent to billing until it is acknowledged."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Never

import structlog

from serving.contract.engine_counters import SAMPLES_MAX, CountersReply, CountersRequest
from serving.fleet.fleet import Fleet
from serving.internal_http import Backoff, InternalCallError, InternalHttpClient

log = structlog.get_logger(__name__)

CALL = "engine-counters"
SEND_SECONDS = 10.0
BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_MAX_SECONDS = 30.0


class Reporter:
    """Empties the fleet's samples into billing."""

    def __init__(
        self,
        fleet: Fleet,
        control: InternalHttpClient,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.reported_count = 0
        self.failure_count = 0
        self._fleet = fleet
        self._control = control
        self._backoff = Backoff(BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS, jitter)

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
            except InternalCallError as error:
                failures_in_a_row += 1
                self.failure_count += 1
                log.warning("engine_samples_not_sent", error=str(error), in_a_row=failures_in_a_row)
                await asyncio.sleep(self._backoff.pause_seconds(failures_in_a_row))

    async def report(self) -> None:
        """Report until nothing is left. Raises CallFailed."""
        samples = self._fleet.samples
        while batch := samples.oldest(SAMPLES_MAX):
            request = CountersRequest(self._fleet.fleet_id, batch)
            await self._control.post(CALL, request, CountersReply, SEND_SECONDS)
            samples.forget(batch)
            self.reported_count += len(batch)
