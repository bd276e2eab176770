"""Following control's feed and the fleet's, and keeping the last good state of both."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from serving.contract.feed import RECORD_OF_KIND
from serving.contract.replica import ReplicaRecord
from serving.feed.batch import Batch, Kinds
from serving.feed.follower import Follower
from serving.feed.mirror import Mirror
from serving.feed.source import Fetch
from serving.gateway import state
from serving.gateway.directory import Directory

log = structlog.get_logger(__name__)

SAVE_SECONDS = 2.0
STALE_SECONDS = 15 * 60.0
"""Without contact for this long a gateway says it is not ready, and goes on serving."""
REPLICA_KINDS: dict[str, type[msgspec.Struct]] = {"replica": ReplicaRecord}


class FollowedFeed:
    """One feed with its file: loaded at start, saved at most every two seconds."""

    def __init__(
        self,
        fetch: Fetch,
        kinds: Kinds,
        path: Path,
        mirror: Mirror,
        apply: Callable[[Batch], None],
    ) -> None:
        self.mirror = mirror
        self._kinds = kinds
        self._path = path
        self._apply = apply
        self._changed = asyncio.Event()
        saved = state.load(path, kinds)
        if saved is not None:
            apply(saved.batch)
        self._is_partial = saved is not None and saved.batch.is_partial
        follows_on = saved is not None and saved.is_current
        self.follower = Follower(
            fetch,
            kinds,
            version=mirror.version if follows_on else 0,
            lineage=mirror.lineage,
        )
        self.save_failures = 0
        """How often in a row the disk would not take the state."""
        self._started_at = time.monotonic()

    @property
    def age_seconds(self) -> float:
        """Seconds since the feed answered; since the start when it never did."""
        contact_at = self.follower.contact_at
        return time.monotonic() - (self._started_at if contact_at is None else contact_at)

    @property
    def is_fresh(self) -> bool:
        """Whether anything is known and the feed was heard of lately."""
        is_known = self.mirror.version > 0 and not self._is_partial
        return is_known and self.age_seconds < STALE_SECONDS

    async def follow(self) -> None:
        """Apply every batch of news, for ever."""
        async for batch in self.follower.batches():
            self._apply(batch)
            self._is_partial = False
            self._changed.set()

    async def keep_saved(self) -> None:
        """Write the state after changes, for ever; what the disk does not take is tried again.

        A gateway that starts with control away believes what is written: a key revoked since then.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                page = state.page_of(self.mirror, self._kinds)
                await asyncio.to_thread(state.save, self._path, page, self._kinds)
                self.save_failures = 0
            except OSError as error:
                self.save_failures += 1
                log.error("state_not_saved", path=self._path.name, error=str(error))
                self._changed.set()
            await asyncio.sleep(SAVE_SECONDS)


def control_feed(fetch: Fetch, path: Path, directory: Directory) -> FollowedFeed:
    """Return the feed of keys, models, prices and deployments."""
    return FollowedFeed(fetch, RECORD_OF_KIND, path, directory.mirror, directory.apply)


def replica_feed(fetch: Fetch, path: Path, directory: Directory) -> FollowedFeed:
    """Return the feed of live replicas."""
    mirror = Mirror()

    def apply(batch: Batch) -> None:
        mirror.apply(batch)
        directory.apply_replicas(mirror)

    return FollowedFeed(fetch, REPLICA_KINDS, path, mirror, apply)
