"""Slots and KV caches, divided among gateways: what each has to do, and what it may take of each
replica.

`POST /demand` on the fleet: when something changes, at most five times a second, or ten times while
slots are on their way, once more at once where a share shrank, and as a heartbeat every quarter of
a second. A gateway asks again only when the question before is answered or given up, so that what
it states is what is in force until the answer comes.

Once the fleet has answered a report, the next ones name only organizations that changed since, and
the answers only those whose part changed. Where either side knows nothing of the other's last word,
the report is whole again.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from serving.contract import SCHEMA
from serving.contract.units import Count, Id, Label, Share, Tier, Tokens, Version

ORGANIZATIONS_MAX = 1_000
"""Of one tier of one deployment. Where there are more, these stand for all."""
NEVER_PAID = "never_paid"
"""The tenant that all organizations together are which never paid: no organization's id."""
REPLICAS_MAX = 10_000
DEPLOYMENTS_MAX = 10_000


class OrganizationDemand(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one organization runs and what it has waiting, in slots: one a sequence. Those that are
    not paying count as one, together. One that has nothing any more is named with neither."""

    weight: Annotated[int, Meta(ge=1, le=10**9)]
    running: Count
    waiting: Count
    is_paying: bool = True


class KvDemand(msgspec.Struct, frozen=True, array_like=True):
    """What a gateway has of one replica's KV cache, in tokens: its `share` as it is in force, and
    what its requests probably hold of it.

    The `permit` is for one request that is larger than the share, and is in force until that
    request has ended; what it holds is not in `held`. `wanted` is what the request needs that waits
    for a permit; 0 where none does.
    """

    capacity: Tokens
    share: Tokens
    held: Tokens
    permit: Tokens = 0
    wanted: Tokens = 0


class KvGrant(msgspec.Struct, frozen=True, array_like=True):
    """What a gateway may have of one replica's KV cache, in tokens: its `share`, and where there is
    a `permit`, so many more for one request that is larger than that. It `is_taken` where another
    gateway has the permit, or has it next."""

    share: Tokens
    permit: Tokens = 0
    is_taken: bool = False


class ReplicaUsage(msgspec.Struct, frozen=True, array_like=True):
    """A gateway's share of one replica as it is in force, and how many slots it takes of it. It
    takes more where the share shrank, until enough of its requests have ended, or where a request
    of several choices started at its last free slot. `may_exceed` says whether that may happen or
    has happened. `kv` is None where the size of the KV cache is not known."""

    share: Count
    running: Count
    may_exceed: bool = False
    kv: KvDemand | None = None


Demands = Annotated[dict[Label, OrganizationDemand], Meta(max_length=ORGANIZATIONS_MAX)]


class DeploymentDemand(msgspec.Struct, frozen=True):
    """What a gateway has to do for one deployment: by tier who runs and waits, and what it holds
    of the replicas that it knows. A tier without anybody has been in use lately, so `batch` leaves
    slots free for it; one that is not named is not in use. It `wants_to_exceed` its share where a
    request of several choices waits."""

    held: Annotated[dict[Id, ReplicaUsage], Meta(max_length=REPLICAS_MAX)] = {}
    tiers: dict[Tier, Demands] = {}
    wants_to_exceed: bool = False


class DemandReport(msgspec.Struct, frozen=True):
    """What one gateway has to do. `number` grows from report to report of one `life`: an older one
    that comes later is not believed. A gateway that starts anew says so by another life, whatever
    its clock shows by then. Who `is_leaving` holds nothing any more.

    A `base` is the number of the last report that was answered, and the tiers of `deployments` name
    only the organizations that changed since; 0 where they name all. All else is always whole.
    """

    gateway_id: Id
    number: Version
    deployments: Annotated[dict[Id, DeploymentDemand], Meta(max_length=DEPLOYMENTS_MAX)]
    is_leaving: bool = False
    life: Annotated[str, Meta(max_length=64)] = ""
    base: Version = 0
    schema: int = SCHEMA


class EngineLoad(msgspec.Struct, frozen=True, array_like=True):
    """How full an engine was when the fleet last looked at it, a second ago or two: how many
    sequences wait in it for room, and what part of its KV cache is in use, to a tenth."""

    waiting: Count
    kv_cache_use: Share

    @property
    def total(self) -> float:
        """Both as one number: who waits counts first."""
        return self.waiting + self.kv_cache_use


class SlotSharesReply(msgspec.Struct, frozen=True):
    """Its slots of each replica that the report named: what is not here is none.

    `number` is that of the report it answers, where the next one may be based on it. It is 0 where
    the fleet took in nothing, as the base is unknown or the report is late, and of fleets that
    take whole reports only.

    `parts` says, by deployment, of which organizations that also come through other gateways only
    a part of the weight counts here, and of all that never paid together as `NEVER_PAID`; to a
    report with a base only what changed, 1 where all of the weight counts again. `tiers` says which
    part of this gateway's slots each tier keeps while it has work; one that is not named keeps its
    guarantee. `guarantees` are those of all slots; where there are none, the usual ones.
    `strains` are those of the replicas in `shares` whose engines tell, but of those that are empty.
    Of the replicas in `may_exceed` it may take more than its share for a request of several
    choices: one gateway at a time. `kv` are its tokens of the KV caches that the report named.
    `epoch` grows with every division.
    """

    epoch: Version
    shares: dict[Id, Count]
    parts: dict[Id, dict[Id, Share]] = {}
    live_gateway_count: Count = 1
    strains: dict[Id, EngineLoad] = {}
    tiers: dict[Id, dict[Tier, Share]] = {}
    guarantees: dict[Tier, Share] = {}
    may_exceed: tuple[Id, ...] = ()
    kv: dict[Id, KvGrant] = {}
    number: Version = 0
    schema: int = SCHEMA
