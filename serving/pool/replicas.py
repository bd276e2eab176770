"""A replica as the gateway uses it, what calls to it showed, and what follows from all of a
deployment's replicas when the feed changes."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from types import TracebackType

from serving.contract.prompt import TEMPLATE_TOKENS_MAX, PromptBound, growth_of
from serving.contract.replica import ISOLATING, NO_PREFIX_CACHE, ReplicaRecord
from serving.contract.slot_shares import KvDemand, KvGrant
from serving.engine.errors import ReplicaUnreachable
from serving.pool.kv_cache import KvNeed, KvUsage
from serving.pool.prefix_history import PrefixHistory


class FirstTokenWait:
    """One request that waits for its first token; `with` it, by the task that works on it. Leaving
    it raises ReplicaUnreachable where the replica was lost meanwhile."""

    def __init__(self, among: set["FirstTokenWait"]) -> None:
        self._among = among
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_lost = False

    def answered(self) -> None:
        """A token came: what began is not begun anew."""
        self._among.discard(self)

    def mark_lost(self) -> None:
        """The replica is no more."""
        self._among.discard(self)
        if self._task is not None:
            self._is_lost = True
            self._task.cancel()

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can lose its replica")
        self._task, self._cancelling = task, task.cancelling()
        self._among.add(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        self._among.discard(self)
        if not self._is_lost or task is None:
            return
        # As asyncio.timeout does: the cancellation is ours unless somebody else asked too.
        ours = kind is not None and issubclass(kind, asyncio.CancelledError)
        if task.uncancel() <= self._cancelling and ours:
            raise ReplicaUnreachable("the fleet calls it failed") from None


EJECT_AFTER_INCIDENTS = 2
EJECT_SECONDS = 2.0
EJECT_SECONDS_MAX = 30.0
SLOW_SECONDS = 10.0
SLOW_SECONDS_MAX = 300.0
SLOW_FORGOTTEN_SECONDS = 600.0
"""One that is found slow again only after so long is put out no longer than the first time."""


@dataclass(slots=True, eq=False)
class Replica:
    """`in_flight` slots are taken, of the `share` that is this gateway's; `now` is monotonic
    seconds throughout.

    An incident is one break, whatever number of requests it hits. Incidents in a row eject the
    replica, unless all of them came with requests of one organization that fared no better
    elsewhere: then the requests are suspected first. One that is far slower than its peers
    (`outlier_detection.py`) is put out too.
    """

    record: ReplicaRecord
    share: int
    in_flight: int = 0
    may_exceed: bool = True
    """Whether a request of several choices may begin where fewer slots are free."""
    kv: KvUsage = field(default_factory=KvUsage)
    kv_passing_max: int | None = None
    """How many tokens a request has at most that may begin before the one that waits for room in
    the KV cache; None where none does."""
    prefill_backlog: int = 0
    """Blocks of prompts that it was given and has not answered;"""
    remote_prefill_backlog: int = 0
    """and those that other gateways gave it, as far as they told."""
    engine_load: float = 0.0
    """How full its engine is, by its own word: requests that wait in it, and the part of its KV
    cache that is in use."""
    incidents: int = 0
    consecutive_failures: int = 0
    is_at_fault: bool = False
    """Whether something since its last success can only be the replica's own fault."""
    ejected_until: float = 0.0
    slow_at: float = 0.0
    slow_until: float = 0.0
    consecutive_slow: int = 0
    prefix_history: PrefixHistory = field(default_factory=PrefixHistory)
    """What its prefix cache probably holds."""
    unanswered: set[FirstTokenWait] = field(default_factory=set)
    """Requests that wait for their first token."""
    loads_since: float = 0.0
    """When it was first told of, or began to load."""
    _organizations: set[str] = field(default_factory=set)

    @property
    def free(self) -> int:
        """How many slots more may be taken."""
        return max(0, self.share - self.in_flight)

    @property
    def has_room(self) -> bool:
        """Whether a request may begin. One of several choices begins at the first free slot where
        it `may_exceed` the share, until as many requests have ended."""
        return self.in_flight < self.share

    @property
    def kv_tokens_max(self) -> int:
        """How many tokens of its KV cache this gateway may have: its share, or where the fleet
        divides none, as much as its slots say; 0 where that is not known."""
        if self.kv.share is not None:
            return self.kv.share
        capacity, slots = self.record.kv_capacity_tokens, self.record.slots
        return capacity * self.share // slots if capacity and slots else 0

    def has_kv_room(self, need: KvNeed, now: float) -> bool:
        """Tell whether a request fits into the KV cache beside what runs, as far as its size is
        known. One that is alone always does, unless the fleet lets others have a part."""
        capacity = self.record.kv_capacity_tokens
        if capacity is None:
            return True
        self.kv.record_growth(now)
        tokens = self.kv.tokens_for(need)
        if self.kv_passing_max is not None and tokens > self.kv_passing_max:
            return False
        kv = self.kv
        if kv.tokens - kv.permit_used + tokens <= self.kv_tokens_max:
            return True
        if kv.permit and kv.is_permitted(tokens):
            return True
        return self.in_flight == 0 and (kv.share is None or kv.share + kv.permit >= capacity)

    def reserve_kv_room(self, need: KvNeed) -> None:
        """A request waits for room in the KV cache: whatever begins before it has to be so small
        that all slots full of it leave that room. So it begins when what runs now has ended. One
        that waits for a permit takes nothing of the share, and others may have all of that."""
        left = self.kv_tokens_max - self.kv.tokens_for(need)
        if left >= 0 or not self.wants_permit(need):
            self.kv_passing_max = max(0, left) // max(1, self.share)

    def wants_permit(self, need: KvNeed) -> bool:
        """Tell whether a request is larger than the share that the fleet grants, and may have
        more."""
        share, capacity = self.kv.share, self.record.kv_capacity_tokens or 0
        return share is not None and share < min(capacity, self.kv.tokens_for(need))

    def kv_demand(self, need: KvNeed | None) -> KvDemand | None:
        """Return what the fleet is told of the KV cache; None where its size is not known. A permit
        is asked for the `need` of the request that waits here, if it is larger than the share;
        without one, what is not used of it is given up."""
        capacity, kv = self.record.kv_capacity_tokens, self.kv
        if capacity is None:
            return None
        share, wanted = self.kv_tokens_max, 0
        tokens = 0 if need is None else min(capacity, kv.tokens_for(need))
        if not kv.is_permitted(tokens):
            kv.permit, kv.permit_above = 0, None
            if need is not None and self.wants_permit(need):
                kv.permit_above, wanted = share, tokens
        held = max(0, kv.tokens - kv.permit_used)
        return KvDemand(capacity, share, held, kv.permit + kv.permit_used, wanted)

    @property
    def is_exceeded(self) -> bool:
        """Whether more of it is taken than its share."""
        return self.in_flight > self.share

    @property
    def is_ready(self) -> bool:
        """Whether the feed says that it may be given work."""
        return self.record.state == "ready"

    @property
    def is_coming(self) -> bool:
        """Whether it is not ready yet, and should be."""
        return self.record.state in ("pending", "loading", "canary")

    @property
    def is_asleep(self) -> bool:
        """Whether it stands for those of a deployment that sleeps."""
        return self.record.state == "asleep"

    def ready_in_seconds(self, now: float) -> float | None:
        """Return in how many seconds it should be ready; None where nobody knows."""
        seconds = self.record.load_seconds
        if seconds is None or self.record.state not in ("loading", "canary"):
            return seconds
        return max(0.0, self.loads_since + seconds - now)

    @property
    def is_lost(self) -> bool:
        """Whether nothing that it was given will be answered, by the feed."""
        return self.record.state in ("failed", "stopped")

    @property
    def on_probation(self) -> bool:
        """Whether it was ejected and has not worked since, or not as fast as others: one request
        at a time tries it."""
        return self.ejected_until > 0.0 or self.slow_until > 0.0

    def is_usable(self, now: float) -> bool:
        """Whether it may be given work: ready by the feed, and not ejected by us."""
        if not self.is_ready or now < self.ejected_until or now < self.slow_until:
            return False
        return not self.on_probation or self.in_flight == 0

    def fail_unanswered(self) -> None:
        """End the requests that it has not answered: another replica may."""
        for one in list(self.unanswered):
            one.mark_lost()

    def record_success(self) -> None:
        """It made a token: whatever was held against it is forgotten."""
        self.consecutive_failures, self.is_at_fault, self.ejected_until = 0, False, 0.0
        self._organizations.clear()

    def record_incident(self, organization_id: str, now: float, *, is_at_fault: bool) -> float:
        """It broke under an organization's request; return for how many seconds it is out."""
        self.incidents += 1
        self.consecutive_failures += 1
        self.is_at_fault |= is_at_fault
        self._organizations.add(organization_id)
        return self.eject(now)

    def eject(self, now: float) -> float:
        """Put it out if enough is held against it; return for how many seconds."""
        repeats = self.consecutive_failures - EJECT_AFTER_INCIDENTS
        if repeats < 0 or not (self.is_at_fault or len(self._organizations) > 1):
            return 0.0
        pause = min(EJECT_SECONDS_MAX, EJECT_SECONDS * 2 ** min(repeats, 10))
        self.ejected_until = now + pause
        return pause

    def eject_slow(self, now: float) -> float:
        """Put it out for being slow; return for how many seconds."""
        if now - self.slow_at > SLOW_FORGOTTEN_SECONDS:
            self.consecutive_slow = 0
        pause = min(SLOW_SECONDS_MAX, SLOW_SECONDS * 2 ** min(self.consecutive_slow, 10))
        self.consecutive_slow += 1
        self.slow_at, self.slow_until = now, now + pause
        return pause


def all_slots(record: ReplicaRecord) -> int:
    """Return a replica's slots: nobody else takes any."""
    return record.slots


def always(record: ReplicaRecord) -> bool:
    """Return that a replica's share may be exceeded: nobody else does it."""
    return True


class ReplicaSet:
    """All replicas of one deployment, as the feed states them, and what follows from them: each
    with the slots that `share_of` says, and more for a request of several choices where
    `may_exceed` says so. `clock` is monotonic seconds."""

    def __init__(
        self,
        clock: Callable[[], float],
        share_of: Callable[[ReplicaRecord], int],
        may_exceed: Callable[[ReplicaRecord], bool],
    ) -> None:
        self.replicas: dict[str, Replica] = {}
        self.ready: list[Replica] = []
        """Those that are ready by the feed."""
        self.capabilities: frozenset[str] = frozenset()
        """What every ready replica declares; where none is, those on their way, or asleep."""
        self.is_isolating = False
        """Whether organizations that share them learn nothing of each other by their caches."""
        self.has_prefix_cache = True
        """Whether a replica remembers what prompts begin with."""
        self.has_kv_bound = False
        """Whether any ready replica says how many tokens its KV cache holds."""
        self.prompt_bound = PromptBound()
        self.wake_seconds = 0.0
        self.may_sleep = False
        self._clock = clock
        self._share_of = share_of
        self._may_exceed = may_exceed

    @property
    def has_ready_replica(self) -> bool:
        """Whether any replica is ready by the feed."""
        return bool(self.ready)

    @property
    def is_waking(self) -> bool:
        """Whether none is ready, one is on its way or will be on demand, and requests may wait for
        it. What sleeps can do is known from the fleet alone."""
        is_asleep = self.may_sleep and bool(self.capabilities)
        is_coming = self._has_coming_replica or is_asleep
        return self.wake_seconds > 0 and is_coming and not self.has_ready_replica

    @property
    def is_loading(self) -> bool:
        """Whether none is ready and one is on its way, or will be on demand."""
        return self.is_waking or (self._has_coming_replica and not self.has_ready_replica)

    @property
    def _has_coming_replica(self) -> bool:
        return any(replica.is_coming for replica in self.replicas.values())

    @property
    def ready_in_seconds(self) -> float | None:
        """In how many seconds the first replica should be ready, by the deployment's last start;
        None where none is on its way, or nobody knows."""
        if not self.is_loading:
            return None
        replicas, now = self.replicas.values(), self._clock()
        meant = [one for one in replicas if one.is_coming] or [o for o in replicas if o.is_asleep]
        known = [seconds for o in meant if (seconds := o.ready_in_seconds(now)) is not None]
        return min(known, default=self.wake_seconds or None)

    @property
    def is_open(self) -> bool:
        """Whether requests may wait here."""
        return self.has_ready_replica or self.is_waking

    def set_records(self, records: Mapping[str, ReplicaRecord]) -> None:
        """Take in what the feed says; a replica that stays keeps its counts, and one that is lost
        loses its unanswered requests where another may answer them."""
        kept = {}
        for replica_id, record in records.items():
            share = self._share_of(record)
            replica = self.replicas.get(replica_id) or Replica(
                record, share, loads_since=self._clock()
            )
            if record.started_at != replica.record.started_at:
                replica.prefix_history.clear()
                replica.loads_since = self._clock()
            replica.record, replica.share = record, share
            replica.may_exceed = self._may_exceed(record)
            kept[replica_id] = replica
        self.replicas = kept
        self.ready = [each for each in kept.values() if each.is_ready]
        for replica in kept.values():
            if self.ready and replica.is_lost:
                replica.fail_unanswered()
        self._update_declared()

    def update_shares(self) -> None:
        """Take in what may be taken of each replica from now on."""
        for replica in self.replicas.values():
            replica.share = self._share_of(replica.record)
            replica.may_exceed = self._may_exceed(replica.record)

    def set_kv_grants(self, grants: Mapping[str, KvGrant]) -> None:
        """Take in what the fleet grants of KV caches; of one that is not named it divides none."""
        for replica_id, replica in self.replicas.items():
            replica.kv.set_grant(grants.get(replica_id))

    def _update_declared(self) -> None:
        """Work out what all replicas can do: those that are ready, or will be."""
        meant = self.ready or [
            each for each in self.replicas.values() if each.is_coming or each.is_asleep
        ]
        declared = [set(each.record.capabilities) for each in meant]
        if declared or not self.may_sleep:
            self.capabilities = frozenset(set.intersection(*declared)) if declared else frozenset()
        self.is_isolating = not ISOLATING.isdisjoint(self.capabilities)
        self.has_prefix_cache = NO_PREFIX_CACHE not in self.capabilities
        self.has_kv_bound = any(each.record.kv_capacity_tokens is not None for each in self.ready)
        if self.ready:
            self.prompt_bound = _bound_of(each.record for each in self.ready)


def _bound_of(records: Iterable[ReplicaRecord]) -> PromptBound:
    """Return how many tokens prompts have at most on all of these."""
    return reduce(
        PromptBound.or_wider,
        (
            PromptBound(
                growth_of(record.capabilities),
                TEMPLATE_TOKENS_MAX if record.template_tokens is None else record.template_tokens,
            )
            for record in records
        ),
    )
