"""Samples of what replicas' engines counted, kept on disk until billing has acknowledged them."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import structlog

from serving.contract.engine_counters import EngineSample
from serving.fleet.disk import Disk, replace_file
from serving.fleet.replica import Replica
from serving.fleet.store import read_file

log = structlog.get_logger(__name__)

SAMPLES_KEPT_MAX = 20_000
"""About 6 MB: what 8 replicas give in 41 hours without control."""

Key = tuple[str, datetime]


class Samples:
    """Those not yet acknowledged, in the order they were taken: one file, replaced whole.

    `arrived` is set while there are any. A failed write is logged and made up for by the next.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self.arrived = asyncio.Event()
        self.dropped_count = 0
        self._unsent = {_key(sample): sample for sample in self._read()}
        self._tell()

    def __len__(self) -> int:
        return len(self._unsent)

    def take(self, replicas: Iterable[Replica]) -> None:
        """Keep a sample of every replica whose engine counts."""
        now = datetime.now(UTC)
        self.add([sample_of(replica, now) for replica in replicas if replica.is_counted])

    def take_last(self, replica: Replica) -> None:
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

    def _tell(self) -> None:
        if self._unsent:
            self.arrived.set()
        else:
            self.arrived.clear()

    def _save(self) -> None:
        self._tell()
        self._disk.put(partial(self._write, list(self._unsent.values())))

    def _write(self, samples: list[EngineSample]) -> None:
        try:
            replace_file(self.path, msgspec.json.encode(samples))
        except OSError as error:
            log.error("engine_samples_not_written", error=str(error))

    def _read(self) -> list[EngineSample]:
        return read_file(self.path, list[EngineSample], default=[])


def sample_of(replica: Replica, now: datetime) -> EngineSample:
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
