"""Samples of what replicas' engines counted: taken each minute, kept on disk, and sent to billing
until they are acknowledged."""

import asyncio
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Never

import msgspec
import structlog

from serving.contract.engine_counters import (
    SAMPLES_MAX,
    CountersReply,
    CountersRequest,
    EngineSample,
)
from serving.fleet.replica import ManagedReplica
from serving.fleet.state_store import FileWriter, read_file, replace_file
from serving.internal_http import Backoff, InternalCallError, InternalHttpClient

log = structlog.get_logger(__name__)


SAMPLES_KEPT_MAX = 20_000
"""About 6 MB: what 8 replicas give in 41 hours without control."""

Key = tuple[str, datetime]


class CounterSamples:
    """Those not yet acknowledged, in the order they were taken: one file, replaced whole.

    `arrived` is set while there are any. A failed write is logged and made up for by the next.
    """

    def __init__(self, path: Path, disk: FileWriter) -> None:
        self.path = path
        self._disk = disk
        self.arrived = asyncio.Event()
        self.dropped_count = 0
        self._unsent = {_key(sample): sample for sample in self._read()}
        self._signal()

    def __len__(self) -> int:
        return len(self._unsent)

    def sample(self, replicas: Iterable[ManagedReplica]) -> None:
        """Keep a sample of every replica whose engine counts."""
        now = datetime.now(UTC)
        self.add([sample_of(replica, now) for replica in replicas if replica.is_counted])

    def sample_last(self, replica: ManagedReplica) -> None:
        """Keep the last sample of a replica that is over."""
        if replica.is_counted:
            sample = sample_of(replica, datetime.now(UTC))
            self.add([msgspec.structs.replace(sample, is_last=True)])

    def add(self, samples: Iterable[EngineSample]) -> None:
        """Keep samples. Where there are too many, the oldest go but for each replica's last."""
        self._unsent |= {_key(sample): sample for sample in samples}
        surplus = len(self._unsent) - SAMPLES_KEPT_MAX
        if surplus > 0:
            self._drop(surplus)
        self._save()

    def oldest(self, count: int) -> tuple[EngineSample, ...]:
        """Return up to `count` samples, the oldest first."""
        return tuple(self._unsent.values())[:count]

    def forget(self, samples: Iterable[EngineSample]) -> None:
        """Forget what was acknowledged."""
        for sample in samples:
            self._unsent.pop(_key(sample), None)
        self._save()

    def _drop(self, count: int) -> None:
        """Counters only grow, so an inner sample takes no tokens along, only their minute."""
        newest = {sample.replica_id: key for key, sample in self._unsent.items()}
        inner = [key for key, sample in self._unsent.items() if newest[sample.replica_id] != key]
        for key in (inner + list(newest.values()))[:count]:
            del self._unsent[key]
        self.dropped_count += count
        log.error("engine_samples_dropped", count=count)

    def _signal(self) -> None:
        if self._unsent:
            self.arrived.set()
        else:
            self.arrived.clear()

    def _save(self) -> None:
        self._signal()
        self._disk.put(partial(self._write, list(self._unsent.values())))

    def _write(self, samples: list[EngineSample]) -> None:
        try:
            replace_file(self.path, msgspec.json.encode(samples))
        except OSError as error:
            log.error("engine_samples_not_written", error=str(error))

    def _read(self) -> list[EngineSample]:
        return read_file(self.path, list[EngineSample], default=[])


def sample_of(replica: ManagedReplica, now: datetime) -> EngineSample:
    """Return a replica's counters as they were last seen."""
    at = max(now, replica.started_at)  # the wall clock may have been set back
    total, probes = replica.counted.total, replica.counted.probes
    return EngineSample(
        replica_id=replica.replica_id,
        deployment_id=replica.deployment.deployment_id,
        started_at=replica.started_at,
        at=at,
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
        cached_tokens=total.cached_tokens,
        requests=total.requests,
        probe_input_tokens=probes.input_tokens,
        probe_output_tokens=probes.output_tokens,
        probe_requests=probes.requests,
        ready_seconds=replica.ready_seconds(at),
        busy_seconds=int(replica.counted.busy_seconds),
    )


def _key(sample: EngineSample) -> Key:
    return (sample.replica_id, sample.at)


CALL = "engine-counters"
SEND_SECONDS = 10.0
BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_MAX_SECONDS = 30.0


class CounterReporter:
    """Sends the fleet's samples to billing."""

    def __init__(
        self,
        samples: CounterSamples,
        fleet_id: str,
        control: InternalHttpClient,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.reported_count = 0
        self.failure_count = 0
        self._samples = samples
        self._fleet_id = fleet_id
        self._control = control
        self._backoff = Backoff(BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS, jitter)

    async def report_forever(self) -> Never:
        """Report whatever arrives; an outage is waited out with jitter."""
        failures_in_a_row = 0
        while True:
            await self._samples.arrived.wait()
            try:
                await self.report()
                failures_in_a_row = 0
            except InternalCallError as error:
                failures_in_a_row += 1
                self.failure_count += 1
                log.warning("engine_samples_not_sent", error=str(error), in_a_row=failures_in_a_row)
                await asyncio.sleep(self._backoff.pause_seconds(failures_in_a_row))

    async def report(self) -> None:
        """Report until nothing is left. Raises InternalCallError."""
        while batch := self._samples.oldest(SAMPLES_MAX):
            request = CountersRequest(self._fleet_id, batch)
            await self._control.post(CALL, request, CountersReply, SEND_SECONDS)
            self._samples.forget(batch)
            self.reported_count += len(batch)
