"""The replica feed: numbered changes of replica records, waited for by long polls."""

import asyncio
from collections import deque
from collections.abc import Mapping

import msgspec

from serving.contract.feed import DELETED, FeedChange, FeedPage
from serving.contract.replica import ReplicaRecord
from serving.contract.replica_token import credential_mark, seal

CHANGES_KEPT = 1_000


class ReplicaFeed:
    """Holds the latest record of every replica and the changes that led there.

    `version` starts at a number no earlier run of this fleet has reached (the wall clock in
    milliseconds), and `lineage` names the run and its generation, should that clock have been set
    back: a reader who knew an earlier run is given a snapshot.
    """

    def __init__(self, *, version: int, lineage: str) -> None:
        self.version = version
        self.lineage = lineage
        self._records: dict[str, ReplicaRecord] = {}
        self._changes: deque[FeedChange] = deque(maxlen=CHANGES_KEPT)
        self._oldest_answerable = version
        self._changed = asyncio.Event()

    def publish(self, record: ReplicaRecord) -> None:
        """Tell readers of a replica's new state; nothing happens if it is the old one."""
        if self._records.get(record.replica_id) != record:
            self._records[record.replica_id] = record
            self._append(record.replica_id, msgspec.Raw(msgspec.json.encode(record)))

    def refresh(self, record: ReplicaRecord) -> None:
        """Bring figures up to date for snapshots, without waking any reader."""
        self._records[record.replica_id] = record

    def wake(self) -> None:
        """Answer every reader that waits, with or without news."""
        self._changed.set()
        self._changed = asyncio.Event()

    def record_of(self, replica_id: str) -> ReplicaRecord | None:
        """Return the latest record of a replica."""
        return self._records.get(replica_id)

    def remove(self, replica_id: str) -> None:
        """Tell readers that a replica is no more."""
        if self._records.pop(replica_id, None) is not None:
            self._append(replica_id, DELETED)

    async def page(self, after: int, lineage: str | None, *, wait_seconds: float) -> FeedPage:
        """Return what came after version `after` of a lineage (None: of any), waiting for news
        when there is none yet."""
        is_ours = lineage in (None, self.lineage)
        if is_ours and after == self.version:
            news = self._changed
            try:
                async with asyncio.timeout(wait_seconds):
                    await news.wait()
            except TimeoutError:
                return FeedPage(self.version, False, (), self.lineage)
        if is_ours and self._oldest_answerable <= after <= self.version:
            changes = tuple(change for change in self._changes if change.version > after)
            return FeedPage(self.version, False, changes, self.lineage)
        return self._snapshot()

    def _append(self, replica_id: str, record: msgspec.Raw) -> None:
        if len(self._changes) == CHANGES_KEPT:
            self._oldest_answerable = self._changes[0].version
        self.version += 1
        self._changes.append(FeedChange(self.version, "replica", replica_id, record))
        self.wake()

    def _snapshot(self) -> FeedPage:
        changes = tuple(
            FeedChange(self.version, "replica", id_, msgspec.Raw(msgspec.json.encode(record)))
            for id_, record in self._records.items()
        )
        return FeedPage(self.version, True, changes, self.lineage)


def own_lineage(told: str | None, credential: str) -> str | None:
    """Return the feed's lineage that a gateway's stands for; with another credential than then, it
    stands for none."""
    if told is None:
        return None
    lineage, _, mark = told.rpartition(".")
    return lineage if mark == credential_mark(credential) else ""


def with_tokens(page: FeedPage, credential: str, tokens: Mapping[str, str]) -> FeedPage:
    """Return a page with the tokens of replicas, sealed for a gateway with its credential. The
    lineage names the credential: what is sealed with another one is read anew."""
    return msgspec.structs.replace(
        page,
        changes=tuple(_with_token(change, credential, tokens) for change in page.changes),
        lineage=f"{page.lineage}.{credential_mark(credential)}",
    )


def _with_token(change: FeedChange, credential: str, tokens: Mapping[str, str]) -> FeedChange:
    token = tokens.get(change.id)
    if change.is_deletion or not token:
        return change
    record = msgspec.json.decode(change.record, type=ReplicaRecord)
    record = msgspec.structs.replace(record, token=seal(credential, change.id, token))
    return msgspec.structs.replace(change, record=msgspec.Raw(msgspec.json.encode(record)))


def is_same_news(record: ReplicaRecord, known: ReplicaRecord) -> bool:
    """Tell whether only the seconds of loading or the probes' tokens differ."""
    stages = {one.progress.partition(" (")[0] for one in (record, known)}
    return record.state == known.state and len(stages) == 1
