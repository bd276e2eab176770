"""One fleet as a gateway sees it: its feed of replicas, and the slots of them that it grants."""

import dataclasses
from collections.abc import Coroutine
from pathlib import Path

import aiohttp
import msgspec

from serving.contract.codec import decode
from serving.contract.fleet import generation_of
from serving.contract.records import DEFAULT_FLEET
from serving.contract.replica import ReplicaRecord
from serving.contract.replica_token import unseal
from serving.contract.units import Lineage
from serving.feed.changes import ChangeBatch, RecordChange
from serving.feed.follower import FeedPosition, FeedSource, FeedUnavailable, Fetch
from serving.feed.subscription import FeedSubscription
from serving.gateway.directory import Directory
from serving.gateway.slot_shares import DemandReporter, GrantedSlots


class PageOrigin(msgspec.Struct, frozen=True):
    """The part of a page that says which life of the fleet states it."""

    lineage: Lineage = ""


REPLICA_KINDS: dict[str, type[msgspec.Struct]] = {"replica": ReplicaRecord}


class NewestGeneration:
    """Asks a fleet's feed, and believes no older life of the fleet than the newest that was
    followed: behind one address there may be two for a while."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def __call__(self, position: FeedPosition) -> bytes:
        """Return the page after a position, whose lineage tells the generation that was followed,
        also before a restart. Raises FeedUnavailable for the page of an older one."""
        page = await self._fetch(position)
        stated = generation_of(decode(page, PageOrigin).lineage)
        followed = generation_of(position.lineage)
        if stated < followed:
            raise FeedUnavailable(f"generation {stated} of the fleet answers, not {followed}")
        return page


class FleetLink:
    """Follows the feed of the fleet at `url`, keeps its last good state in `folder`, and reports
    what there is to do in its deployments."""

    def __init__(
        self,
        fleet_id: str,
        url: str,
        *,
        session: aiohttp.ClientSession,
        credential: str,
        directory: Directory,
        gateway_id: str,
        folder: Path,
        report_seconds: float,
    ) -> None:
        self.fleet_id = fleet_id
        self.shares = GrantedSlots(directory.live_gateway_count)
        self.demand = DemandReporter(
            session,
            url,
            credential,
            gateway_id=gateway_id,
            shares=self.shares,
            pools=lambda: directory.pools_of(fleet_id),
            report_seconds=report_seconds,
        )
        mirror = directory.add_fleet(fleet_id)
        self.replica_feed = FeedSubscription(
            NewestGeneration(FeedSource(session, f"{url}/replicas", credential)),
            REPLICA_KINDS,
            folder / _state_name(fleet_id),
            mirror,
            lambda batch: directory.apply_replicas_in_steps(mirror, _unsealed(batch, credential)),
        )

    def background(self) -> dict[str, Coroutine[None, None, None]]:
        """Return what runs beside the requests, by name."""
        return {
            f"replica feed {self.fleet_id}": self.replica_feed.follow(),
            f"replica state {self.fleet_id}": self.replica_feed.state_writer.run(),
            f"slot shares {self.fleet_id}": self.demand.run(),
        }

    async def leave(self) -> None:
        """Give back what the fleet granted, if it granted anything."""
        if self.shares.has_reply:
            await self.demand.send_leaving()


def _unsealed(batch: ChangeBatch, credential: str) -> ChangeBatch:
    """Return changes with the tokens of nodes as they are shown; on disk they stay sealed."""
    return dataclasses.replace(
        batch, updates=tuple(_shown(one, credential) for one in batch.updates)
    )


def _shown(change: RecordChange, credential: str) -> RecordChange:
    record = change.record
    if not isinstance(record, ReplicaRecord) or not record.token:
        return change
    token = unseal(credential, record.replica_id, record.token)
    return msgspec.structs.replace(change, record=msgspec.structs.replace(record, token=token))


def _state_name(fleet_id: str) -> str:
    """Return the name of the file with what a fleet's feed last said; that of the only fleet is
    the one that it had before there were several."""
    return "replicas.sqlite3" if fleet_id == DEFAULT_FLEET else f"replicas-{fleet_id}.sqlite3"
