"""One feed, followed, and its last good state kept."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from serving.feed.changes import ChangeBatch, Kinds
from serving.feed.follower import FeedFollower, Fetch
from serving.feed.mirror import FeedMirror
from serving.feed.state_store import StateFile, StateWriter

STALE_SECONDS = 15 * 60.0
"""Without contact for this long a gateway says it is not ready, and goes on serving."""
TURN_SECONDS = 0.002
"""A step that reads every record lets the loop go after this long."""


class FeedSubscription:
    """One feed with its file: read at start, written at each change."""

    def __init__(
        self,
        fetch: Fetch,
        kinds: Kinds,
        path: Path,
        mirror: FeedMirror,
        apply_in_steps: Callable[[ChangeBatch], Iterator[None]],
    ) -> None:
        self.mirror = mirror
        self.follower = FeedFollower(fetch, kinds)
        self._file = StateFile(path, kinds)
        self.state_writer = StateWriter(self._file, self.follower.start_over)
        self._apply_in_steps = apply_in_steps
        self.known = asyncio.Event()
        """Whether there is anything to go by: of this life or of an earlier one."""
        self._is_partial = False
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

    async def load(self) -> None:
        """Take in what was written last, and follow on from there."""
        for batch in self._file.read():
            await self._apply(batch)
            await asyncio.sleep(0)
        self.follower.position = self._file.position
        self.state_writer.saved_version = self._file.position.version

    async def follow(self) -> None:
        """Apply every batch of news, and hand it over to be kept, for ever."""
        async for batch in self.follower.batches():
            await self._apply(batch)
            await self.state_writer.enqueue(batch)

    async def close(self) -> None:
        """Let others use the file."""
        await self.state_writer.close()

    async def _apply(self, batch: ChangeBatch) -> None:
        await asyncio.sleep(0)  # to read the batch took a turn of its own
        began = time.monotonic()
        for _ in self._apply_in_steps(batch):
            if time.monotonic() - began > TURN_SECONDS:
                await asyncio.sleep(0)
                began = time.monotonic()
        if batch.is_last:
            self._is_partial = batch.is_partial
            self.known.set()
