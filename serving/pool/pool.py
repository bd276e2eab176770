"""The pool of one deployment: its replicas, their slots, and the queue before them."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce

from serving.contract.prompt import TEMPLATE_TOKENS_MAX, PromptBound, growth_of
from serving.contract.records import DeploymentRecord
from serving.contract.replica import ISOLATING, NO_PREFIX_CACHE, ReplicaRecord
from serving.contract.slot_shares import EngineLoad
from serving.contract.tiers import DEFAULT_GUARANTEES, URGENT, Guarantees, reserved_slots
from serving.contract.units import Tier
from serving.pool.errors import NoReplica, NoSpare, Quarantined
from serving.pool.health import Health
from serving.pool.line import BOUNDS, Bounds
from serving.pool.member import Place
from serving.pool.prefixes import Blocks
from serving.pool.pressure import Pressure
from serving.pool.queue import FairQueue
from serving.pool.replica import Replica
from serving.pool.route import Choice, Why, choose, has_other
from serving.pool.slot import Slot
from serving.pool.ticket import Ticket
from serving.pool.waiting import wait_before

IN_USE_SECONDS = 600.0
"""For so long after its last request an urgent tier has slots kept free of `batch`."""


def all_slots(record: ReplicaRecord) -> int:
    """Return a replica's slots: nobody else takes any."""
    return record.slots


def always(record: ReplicaRecord) -> bool:
    """Return that a replica's share may be exceeded: nobody else does it."""
    return True


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


class Pool:
    """Slots of one deployment, as many of each replica as `share_of` says, and more for a request
    of several choices where `may_exceed` says so. `on_demand` hears when
    somebody begins to wait, or replicas change; `on_prompt` which replica is given which prompt's
    blocks. `clock` is monotonic seconds; `all_pressure` is that of all pools of a gateway."""

    def __init__(
        self,
        deployment_id: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        bounds: Bounds = BOUNDS,
        share_of: Callable[[ReplicaRecord], int] = all_slots,
        may_exceed: Callable[[ReplicaRecord], bool] = always,
        on_demand: Callable[[], None] = lambda: None,
        on_prompt: Callable[[str, Blocks], None] = lambda replica_id, blocks: None,
        all_pressure: Pressure | None = None,
    ) -> None:
        self.deployment_id = deployment_id
        self.replicas: dict[str, Replica] = {}
        self.capabilities: frozenset[str] = frozenset()
        """What every ready replica declares; where none is, those on their way, or asleep."""
        self.prompt_bound = PromptBound()
        self.wake_seconds = 0.0
        self._may_sleep = False
        self.queue = FairQueue(clock, bounds)
        self.reserved_share = 0.1
        """Of all gateways' slots, kept free of `batch` for each urgent tier in use."""
        self._used_at: dict[Tier, float] = {}
        self.choices: Counter[Why] = Counter()
        """Requests by why they went where they did."""
        self._clock = clock
        self._share_of = share_of
        self._may_exceed = may_exceed
        self.on_demand = on_demand
        self._on_prompt = on_prompt
        self.health = Health(clock, self.call)
        self.pressure = Pressure(within=all_pressure)

    @property
    def has_ready_replica(self) -> bool:
        """Whether any replica is ready by the feed."""
        return any(replica.is_ready for replica in self.replicas.values())

    @property
    def is_waking(self) -> bool:
        """Whether none is ready, one is on its way or will be on demand, and requests may wait for
        it. What sleeps can do is known from the fleet alone."""
        is_asleep = self._may_sleep and bool(self.capabilities)
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

    @property
    def is_isolating(self) -> bool:
        """Whether organizations that share it learn nothing of each other by its prefix cache."""
        return not ISOLATING.isdisjoint(self.capabilities)

    @property
    def has_prefix_cache(self) -> bool:
        """Whether a replica remembers what prompts begin with."""
        return NO_PREFIX_CACHE not in self.capabilities

    @property
    def now(self) -> float:
        """The moment by its clock."""
        return self._clock()

    @property
    def load(self) -> float:
        """How many requests it has for each slot of its ready replicas, waiting ones included."""
        ready = [replica for replica in self.replicas.values() if replica.is_ready]
        slots = sum(replica.share for replica in ready)
        taken = sum(replica.in_flight for replica in ready) + len(self.queue)
        return taken / slots if slots else float("inf")

    @property
    def is_pressed(self) -> bool:
        """Whether somebody waits, or more runs than its share."""
        over = any(one.in_flight > one.share for one in self.replicas.values() if one.is_ready)
        return over or len(self.queue) > 0

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits and nothing runs."""
        return not any(line.running for line in self.queue.lines.values()) and not self.queue

    def retire(self) -> None:
        """Its deployment is deleted: no request waits for replicas that would wake on demand."""
        self._may_sleep = False
        self.call()

    def configure(self, record: DeploymentRecord) -> None:
        """Take in what the deployment says of its slots."""
        self.reserved_share = record.reserved_share
        self.wake_seconds = record.timeouts.wake_seconds
        self._may_sleep = record.may_sleep
        self.call()

    def set_replicas(self, records: Mapping[str, ReplicaRecord]) -> None:
        """Bring the pool to what the feed says; a replica that stays keeps its counts."""
        kept = {}
        for replica_id, record in records.items():
            share = self._share_of(record)
            replica = self.replicas.get(replica_id) or Replica(
                record, share, loads_since=self._clock()
            )
            if record.started_at != replica.record.started_at:
                replica.seen.clear()
                replica.loads_since = self._clock()
            replica.record, replica.share = record, share
            replica.may_exceed = self._may_exceed(record)
            kept[replica_id] = replica
        self.health.set_replicas(kept)
        self.replicas = kept
        ready = [each for each in kept.values() if each.is_ready]
        for replica in kept.values():
            if ready and replica.is_lost:
                replica.lose_unanswered()
        self.queue.set_served(bool(ready))
        meant = ready or [each for each in kept.values() if each.is_coming or each.is_asleep]
        declared = [set(each.record.capabilities) for each in meant]
        if declared or not self._may_sleep:
            self.capabilities = frozenset(set.intersection(*declared)) if declared else frozenset()
        if ready:
            self.prompt_bound = _bound_of(each.record for each in ready)
        self.on_demand()
        self.call()

    @property
    def urgent_tiers(self) -> list[Tier]:
        """The tiers in use for which `batch` leaves slots free."""
        since = self._clock() - IN_USE_SECONDS
        return [tier for tier in URGENT if self._used_at.get(tier, since) > since]

    def set_shares(
        self,
        parts: Mapping[str, float],
        tiers: Mapping[Tier, float] | None = None,
        guarantees: Guarantees | None = None,
    ) -> None:
        """Take in what may be taken of each replica from now on, of which organizations only a part
        of the weight counts here, which part of these slots tiers keep, and what tiers are
        guaranteed of all gateways' slots."""
        for replica in self.replicas.values():
            replica.share = self._share_of(replica.record)
            replica.may_exceed = self._may_exceed(replica.record)
        self.queue.set_parts(parts)
        self.queue.set_shares(guarantees or DEFAULT_GUARANTEES, tiers or {})
        self.call()

    def set_strains(self, strains: Mapping[str, EngineLoad]) -> None:
        """Take in how full engines are; of one that is not named nothing is known."""
        for replica_id, replica in self.replicas.items():
            strain = strains.get(replica_id)
            replica.strain = 0.0 if strain is None else strain.total

    def has_room(self, tier: Tier, width: int = 1) -> bool:
        """Tell whether a request that comes now would be given a place at once."""
        if not self.queue.is_first(tier) or self._is_reserved(tier):
            return False
        return choose(self.replicas.values(), self._clock(), width=width) is not None

    def slot(
        self, ticket: Ticket, avoid: Collection[str] = (), elsewhere: Collection["Pool"] = ()
    ) -> Slot:
        """Return a slot to hold with `async with`, once it is its turn, here or in one of those
        `elsewhere`; entering it raises PoolError."""
        return Slot(self, ticket, avoid, elsewhere)

    async def take(
        self, ticket: Ticket, avoid: Collection[str], elsewhere: Collection["Pool"] = ()
    ) -> Place:
        """Take a place on the chosen replica: here if there is one, else the first that there is,
        here or `elsewhere`; a pool whose sound replicas are all to `avoid` is none of them where
        another has others. Raises PoolError."""
        if seconds := self.health.quarantined_seconds(ticket):
            raise Quarantined(seconds)
        self._used_at[ticket.tier] = self._clock()
        if ticket.tier == "priority" and not avoid:
            self.health.hedging.budget.note_request()
        if not self._has_tokens_for(ticket):
            raise self.queue.pressed(ticket)
        pools = [self, *(pool for pool in elsewhere if pool.trusts(ticket))]
        if avoid:
            pools = [pool for pool in pools if pool.has_other(avoid)] or pools
        for pool in pools:
            if pool.queue.is_first(ticket.tier) and (choice := pool._find_for(ticket, avoid)):
                return pool._place(ticket, choice)
        pools = [pool for pool in pools if pool.is_open]
        if not pools:
            raise self.no_replica()
        return await wait_before(pools, ticket, avoid)

    def has_other(self, avoid: Collection[str]) -> bool:
        """Tell whether a sound replica is there besides those to `avoid`."""
        return has_other(self.replicas.values(), self._clock(), avoid)

    def trusts(self, ticket: Ticket) -> bool:
        """Tell whether such requests are not refused for having broken engines."""
        return not self.health.quarantined_seconds(ticket)

    def take_spare(self, ticket: Ticket, avoid: Collection[str]) -> Place:
        """Take a place for the second try at a request, on a sound replica that has one to spare,
        where nobody waits for it and the budget allows. Raises NoSpare."""
        choice = self._find_for(ticket, avoid) if self.queue.is_first(ticket.tier) else None
        if choice is None or choice.replica.record.replica_id in avoid:
            raise NoSpare
        spare = choice.replica
        if not spare.is_usable(self._clock()) or spare.is_on_trial:
            raise NoSpare
        if not self._has_tokens_for(ticket) or not self.health.hedging.budget.take():
            raise NoSpare
        return self._place(ticket, choice)

    def give_back(self, place: Place) -> None:
        """End what `take` began, and `vacate` may have ended in part."""
        self.pressure.remove(place.service.ticket)
        self.free(place)

    def vacate(self, place: Place) -> Place:
        """A place's slots may be taken by others while its request goes on without its engine.
        Return the place, with nothing left to read."""
        place.service.vacated_at = self.now
        place.replica.in_flight -= place.service.ticket.width
        place.replica.unread -= place.unread
        self.call()
        return place._replace(unread=0)

    def note_read(self, place: Place) -> Place:
        """A prompt was read: its first token came. Return the place, with nothing left to read."""
        place.replica.unread -= place.unread
        return place._replace(unread=0)

    def call(self) -> None:
        """Give places to those whose turn it is, as long as there are any. One that avoids the
        replicas that have some, or may not exceed their shares, lets others pass and stays first.
        """
        passed: defaultdict[Tier, set[str]] = defaultdict(set)
        is_held_back = False
        while self.queue.is_waited and not is_held_back:
            if not self.is_open:
                self.queue.send_away(self.no_replica())
                break
            waiter = self.queue.first(self._slots(), passed)
            if waiter is None:
                break
            ticket, avoid = waiter.ticket, waiter.avoid
            if self._is_reserved(ticket.tier):
                is_held_back = True
            elif (choice := self._choose(ticket, avoid)) is not None:
                self._occupy(choice, ticket)
                service = self.queue.serve(waiter)
                waiter.turn.set_result(Place(self, choice.replica, service, choice.unread))
            elif (avoid or ticket.width > 1) and any(
                one.has_room for one in self.replicas.values()
            ):
                passed[ticket.tier].add(ticket.organization_id)
            else:
                break
        self.queue.passed = passed
        self.queue.set_held_back(is_held_back)

    def _place(self, ticket: Ticket, choice: Choice) -> Place:
        """Give a place to one that need not wait."""
        self.pressure.add(ticket)
        self._occupy(choice, ticket)
        return Place(self, choice.replica, self.queue.serve_at_once(ticket), choice.unread)

    def _occupy(self, choice: Choice, ticket: Ticket) -> None:
        """Count what a request takes of its replica, and what that learns from it."""
        choice.replica.in_flight += ticket.width
        choice.replica.unread += choice.unread
        self.choices[choice.why] += 1
        if ticket.blocks:
            choice.replica.seen.note(ticket.blocks)
            self._on_prompt(choice.replica.record.replica_id, ticket.blocks)

    def free(self, place: Place) -> None:
        """A place's slots may be taken by others, unless `vacate` said so before."""
        if place.service.vacated_at is None:
            place.replica.in_flight -= place.service.ticket.width
            place.replica.unread -= place.unread
        self.queue.end(place.service)
        self.call()

    def _find_for(self, ticket: Ticket, avoid: Collection[str]) -> Choice | None:
        """Return a replica with a free slot, but for those that are kept free of `batch`."""
        return None if self._is_reserved(ticket.tier) else self._choose(ticket, avoid)

    def _choose(self, ticket: Ticket, avoid: Collection[str]) -> Choice | None:
        replicas, now = self.replicas.values(), self._clock()
        return choose(replicas, now, avoid, width=ticket.width, blocks=ticket.blocks)

    def _slots(self) -> int:
        return sum([replica.share for replica in self.replicas.values() if replica.is_ready])

    def _has_tokens_for(self, ticket: Ticket) -> bool:
        return self.pressure.fits(ticket, self.queue.guarantees[ticket.tier])

    def _is_reserved(self, tier: Tier) -> bool:
        """Tell whether the free slots are kept free of `batch`, and the tier is that."""
        if tier != "batch" or not (urgent := len(self.urgent_tiers)):
            return False
        ready = [replica for replica in self.replicas.values() if replica.is_ready]
        total = sum(replica.record.slots for replica in ready)
        reserved = reserved_slots(urgent, self.reserved_share, self._slots(), total)
        return sum(replica.free for replica in ready) <= reserved

    def no_replica(self) -> NoReplica:
        """Return what to tell whoever waited in vain for the first replica."""
        seconds = self.ready_in_seconds
        return NoReplica(self.deployment_id, seconds, is_coming=self.is_loading)
