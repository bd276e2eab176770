"""The pool of one deployment: its slots, given at once or when a request's turn comes in any of
several pools."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from copy import copy

from msgspec.structs import replace

from serving.contract.records import DeploymentRecord
from serving.contract.replica import ReplicaRecord
from serving.contract.slot_shares import EngineLoad
from serving.contract.tiers import DEFAULT_GUARANTEES, URGENT, Guarantees, reserved_slots
from serving.contract.units import Tier
from serving.engine.events import TokenUsage
from serving.pool.health import ReplicaHealth
from serving.pool.overload import LoadShedder
from serving.pool.prefix_history import PromptPrefix
from serving.pool.queue import FairQueue, SlotGrant, Waiter
from serving.pool.replicas import FirstTokenWait, Replica, ReplicaSet, all_slots, always
from serving.pool.router import KvReservation, RouteDecision, Why, choose, has_other
from serving.pool.slot_request import (
    NoHedgeSlot,
    NoReadyReplica,
    PoolError,
    RequestQuarantined,
    SlotRequest,
)
from serving.pool.tier_queue import BOUNDS, QueueLimits, ServiceCharge

PACED_TOKENS_MIN = 8
"""Of a sequence whose time for each token is believed."""
IN_USE_SECONDS = 600.0
"""For so long after its last request an urgent tier has slots kept free of `batch`."""


class Pool(ReplicaSet):
    """The slots of one deployment's replicas, and the queue before them. `on_demand` hears when
    somebody begins to wait, or replicas change; `on_prompt` which replica is given which prompt's
    prefix. `clock` is monotonic seconds; `all_pressure` is that of all pools of a gateway."""

    def __init__(
        self,
        deployment_id: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        bounds: QueueLimits = BOUNDS,
        share_of: Callable[[ReplicaRecord], int] = all_slots,
        may_exceed: Callable[[ReplicaRecord], bool] = always,
        on_demand: Callable[[], None] = lambda: None,
        on_prompt: Callable[[str, PromptPrefix], None] = lambda replica_id, prefix: None,
        all_pressure: LoadShedder | None = None,
    ) -> None:
        super().__init__(clock, share_of, may_exceed)
        self.deployment_id = deployment_id
        self.queue = FairQueue(clock, bounds)
        self.reserved_share = 0.1
        """Of all gateways' slots, kept free of `batch` for each urgent tier in use."""
        self._used_at: dict[Tier, float] = {}
        self.choices: Counter[Why] = Counter()
        """Requests by why they went where they did."""
        self.on_demand = on_demand
        self._on_prompt = on_prompt
        self.health = ReplicaHealth(clock, self.dispatch)
        self.load_shedder = LoadShedder(within=all_pressure)
        self.kv_reservation = KvReservation()

    @property
    def now(self) -> float:
        """The moment by its clock."""
        return self._clock()

    @property
    def load(self) -> float:
        """How many requests it has for each slot of its ready replicas, waiting ones included."""
        taken = sum(replica.in_flight for replica in self.ready) + len(self.queue)
        return taken / slots if (slots := self._slots()) else float("inf")

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits and nothing runs."""
        return not any(line.running for line in self.queue.tier_queues.values()) and not self.queue

    def retire(self) -> None:
        """Its deployment is deleted: no request waits for replicas that would wake on demand."""
        self.may_sleep = False
        self.dispatch()

    def configure(self, record: DeploymentRecord) -> None:
        """Take in what the deployment says of its slots."""
        self.reserved_share = record.reserved_share
        self.wake_seconds = record.timeouts.wake_seconds
        self.may_sleep = record.may_sleep
        self.dispatch()

    def set_replicas(self, records: Mapping[str, ReplicaRecord]) -> None:
        """Bring the pool to what the feed says; a replica that stays keeps its counts."""
        self.set_records(records)
        self.health.set_replicas(self.replicas)
        self.queue.has_kv_bound = self.has_kv_bound
        self.queue.set_served(self.has_ready_replica)
        self.on_demand()
        self.dispatch()

    @property
    def urgent_tiers(self) -> list[Tier]:
        """The tiers in use for which `batch` leaves slots free."""
        since = self._clock() - IN_USE_SECONDS
        return [tier for tier in URGENT if self._used_at.get(tier, since) > since]

    def set_shares(
        self, tiers: Mapping[Tier, float] | None = None, guarantees: Guarantees | None = None
    ) -> None:
        """Take in what may be taken of each replica from now on, which part of these slots tiers
        keep, and what tiers are guaranteed of all gateways' slots."""
        self.update_shares()
        if any(replica.in_flight > replica.share for replica in self.ready):
            self.queue.end_unwanted()  # Others wait for these slots, at another gateway.
        self.queue.set_shares(guarantees or DEFAULT_GUARANTEES, tiers or {})
        self.dispatch()

    def set_engine_loads(self, engine_loads: Mapping[str, EngineLoad]) -> None:
        """Take in how full engines are; of one that is not named nothing is known."""
        for replica_id, replica in self.replicas.items():
            engine_load = engine_loads.get(replica_id)
            replica.engine_load = 0.0 if engine_load is None else engine_load.total

    def has_room(self, tier: Tier, sequences: int = 1) -> bool:
        """Tell whether a request that comes now would be given a place at once."""
        if not self.queue.is_first(tier) or self._is_reserved(tier):
            return False
        return choose(self.replicas.values(), self._clock(), sequences=sequences) is not None

    def slot(
        self,
        request: SlotRequest,
        excluded: Collection[str] = (),
        elsewhere: Collection["Pool"] = (),
    ) -> "Slot":
        """Return a slot to hold with `async with`, once it is its turn, here or in one of those
        `elsewhere`; entering it raises PoolError."""
        return Slot(self, request, excluded, elsewhere)

    async def acquire(
        self, request: SlotRequest, excluded: Collection[str], elsewhere: Collection["Pool"] = ()
    ) -> tuple["Pool", SlotGrant]:
        """Take a place on the chosen replica: here if there is one, else the first that there is,
        here or `elsewhere`; a pool whose sound replicas are all to `excluded` is none of them where
        another has others. Return the pool that has it too. Raises PoolError."""
        if self.health.suspects and (seconds := self.health.quarantined_seconds(request)):
            raise RequestQuarantined(seconds)
        self._used_at[request.tier] = self._clock()
        if request.tier == "priority" and not excluded:
            self.health.hedging.budget.record_request()
        if not self._has_tokens_for(request):
            raise self.queue.shed(request)
        pools = [self]
        if elsewhere:
            pools += [pool for pool in elsewhere if pool.trusts(request)]
        if excluded:
            pools = [pool for pool in pools if pool.has_other(excluded)] or pools
        for pool in pools:
            if pool.queue.is_first(request.tier) and (choice := pool._find_for(request, excluded)):
                return pool, pool._grant(request, choice)
        pools = [pool for pool in pools if pool.is_open]
        if not pools:
            raise self.no_replica()
        return await wait_before(pools, request, excluded)

    def has_other(self, excluded: Collection[str]) -> bool:
        """Tell whether a sound replica is there besides those to `excluded`."""
        return has_other(self.replicas.values(), self._clock(), excluded)

    def trusts(self, request: SlotRequest) -> bool:
        """Tell whether such requests are not refused for having broken engines."""
        return not self.health.quarantined_seconds(request)

    def acquire_hedge(self, request: SlotRequest, excluded: Collection[str]) -> SlotGrant:
        """Take a place for the second try at a request, on a sound replica that has one to spare,
        where nobody waits for it and the budget allows. Raises NoHedgeSlot."""
        choice = self._find_for(request, excluded) if self.queue.is_first(request.tier) else None
        if choice is None or choice.replica.record.replica_id in excluded:
            raise NoHedgeSlot
        spare = choice.replica
        if not spare.is_usable(self._clock()) or spare.on_probation:
            raise NoHedgeSlot
        if not self._has_tokens_for(request) or not self.health.hedging.budget.take():
            raise NoHedgeSlot
        return self._grant(request, choice)

    def release(self, grant: SlotGrant) -> None:
        """End what `acquire` began, and `vacate` may have ended in part."""
        self.load_shedder.remove(grant.service.request)
        self.free(grant)

    def vacate(self, grant: SlotGrant) -> SlotGrant:
        """A place's slots may be taken by others while its request goes on without its engine.
        Return the place, with nothing left to read."""
        grant.service.vacated_at = self._clock()
        self._leave(grant)
        self.dispatch()
        return grant._replace(prefill_backlog=0)

    def record_prefill_done(self, grant: SlotGrant) -> SlotGrant:
        """A prompt was read: its first token came. Return the place, with nothing left to read."""
        grant.replica.prefill_backlog -= grant.prefill_backlog
        return grant._replace(prefill_backlog=0)

    def dispatch(self) -> None:
        """Give places to those whose turn it is, as long as there are any. One that avoids the
        replicas that have some, may not exceed shares or finds no room in KV caches stays first and
        lets others pass."""
        passed: defaultdict[Tier, set[str]] = defaultdict(set)
        is_held_back, waits_for_kv = False, 0
        if self.kv_reservation.replica is not None:
            self.kv_reservation.clear()
        while self.queue.is_waited and not is_held_back:
            if not self.is_open:
                self.queue.reject_all(self.no_replica())
                break
            waiter = self.queue.first(passed)
            if waiter is None:
                waits_for_kv = self.kv_reservation.tokens
                break
            request, excluded = waiter.request, waiter.excluded
            if self._is_reserved(request.tier):
                is_held_back = True
            elif (choice := self._choose(request, excluded)) is not None:
                waiter.result.set_result(self._occupy(choice, self.queue.serve(waiter)))
            elif self._may_be_overtaken(request, excluded):
                passed[request.tier].add(request.organization_id)
            else:
                break
        self.queue.passed = passed
        self.queue.set_held_back(is_held_back, waits_for_kv)

    def _may_be_overtaken(self, request: SlotRequest, excluded: Collection[str]) -> bool:
        """Tell whether others may have the slots that are free before one that has its turn, and
        keep room in a KV cache for the first that waits for it."""
        replicas, may = self.replicas.values(), bool(excluded) or request.sequences > 1
        if not (may or self.has_kv_bound) or not any(one.has_room for one in replicas):
            return False
        need = self.queue.kv_need(request)
        return self.kv_reservation.reserve(replicas, self.now, excluded, need) or may

    def _grant(self, request: SlotRequest, choice: RouteDecision) -> SlotGrant:
        """Give a place to one that need not wait."""
        self.load_shedder.add(request)
        return self._occupy(choice, self.queue.serve_at_once(request))

    def _occupy(self, choice: RouteDecision, service: ServiceCharge) -> SlotGrant:
        """Count what a request takes of its replica, and what that learns from it."""
        replica, request = choice.replica, service.request
        if replica.record.kv_capacity_tokens is not None:
            replica.kv.reserve(service, self.queue.kv_need(request))
        replica.in_flight += request.sequences
        replica.prefill_backlog += choice.prefill_backlog
        self.choices[choice.why] += 1
        if request.prefix_blocks:
            replica.prefix_history.record(prefix := request.prefix)
            self._on_prompt(replica.record.replica_id, prefix)
        return SlotGrant(self.queue, replica, service, choice.prefill_backlog)

    def _leave(self, grant: SlotGrant) -> None:
        """Count no more what a request took of its replica."""
        replica, service = grant.replica, grant.service
        replica.in_flight -= service.request.sequences
        replica.prefill_backlog -= grant.prefill_backlog
        if replica.kv.holdings:
            replica.kv.release(service)

    def free(self, grant: SlotGrant) -> None:
        """A place's slots may be taken by others, unless `vacate` said so before."""
        if grant.service.vacated_at is None:
            self._leave(grant)
        self.queue.end(grant.service)
        self.dispatch()

    def _find_for(self, request: SlotRequest, excluded: Collection[str]) -> RouteDecision | None:
        """Return a replica with a free slot, but for those that are kept free of `batch`."""
        return None if self._is_reserved(request.tier) else self._choose(request, excluded)

    def _choose(self, request: SlotRequest, excluded: Collection[str]) -> RouteDecision | None:
        replicas, now, width = self.replicas.values(), self._clock(), request.sequences
        need = self.queue.kv_need(request) if self.has_kv_bound else None
        prefix = request.prefix if request.prefix_blocks else None
        return choose(replicas, now, excluded, sequences=width, prefix=prefix, need=need)

    def _slots(self) -> int:
        return sum([replica.share for replica in self.ready])

    def _has_tokens_for(self, request: SlotRequest) -> bool:
        return self.load_shedder.fits(request, self.queue.guarantees[request.tier])

    def _is_reserved(self, tier: Tier) -> bool:
        """Tell whether the free slots are kept free of `batch`, and the tier is that."""
        if tier != "batch" or not (urgent := len(self.urgent_tiers)):
            return False
        total = sum(replica.record.slots for replica in self.ready)
        reserved = reserved_slots(urgent, self.reserved_share, self._slots(), total)
        return sum(replica.free for replica in self.ready) <= reserved

    def no_replica(self) -> NoReadyReplica:
        """Return what to tell whoever waited in vain for the first replica."""
        seconds = self.ready_in_seconds
        return NoReadyReplica(self.deployment_id, seconds, is_coming=self.is_loading)


class Slot:
    """One request's slots on a replica, held with `async with`.

    `token_received` and `replica_failed` say how the request fares, and neither is said of a client
    that left. Where nobody says `usage_known`, the progress that its `service` states is charged,
    if it states any. One that `is_hedge` waits for nothing: it is there, or there is none. `pool`
    is, once it is held, the one that it is of."""

    __slots__ = (
        *("_elsewhere", "_excluded", "_first_at", "_grant", "_incidents", "_is_hedge"),
        *("pool", "replica", "request", "service", "unanswered"),
    )

    def __init__(
        self,
        pool: Pool,
        request: SlotRequest,
        excluded: Collection[str],
        elsewhere: Collection[Pool] = (),
        *,
        is_hedge: bool = False,
    ) -> None:
        self.pool = pool
        self.request = request
        self._excluded = excluded
        self._elsewhere = elsewhere
        self._is_hedge = is_hedge
        self._first_at: float | None = None

    async def __aenter__(self) -> "Slot":
        """Raises PoolError."""
        if self._is_hedge:
            self._grant = self.pool.acquire_hedge(self.request, self._excluded)
        else:
            taken = await self.pool.acquire(self.request, self._excluded, self._elsewhere)
            self.pool, self._grant = taken
        self.service = self._grant.service
        self.replica: Replica = self._grant.replica
        self.unanswered = FirstTokenWait(self.replica.unanswered)
        self._incidents = self.replica.incidents
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.service.is_settled:
            progress = self.service.progress
            self.pool.queue.settle(self.service, None if progress is None else progress())
        self.pool.release(self._grant)

    @property
    def late_seconds(self) -> float | None:
        """After how long without a token a second replica should be asked too; None: never."""
        return self.pool.health.late_seconds(self.replica, self.request)

    def hedge_slot(self) -> "Slot":
        """Return a slot on another replica for the same request, where there is one to spare."""
        excluded = (*self._excluded, self.replica.record.replica_id)
        return Slot(self.pool, self.request, excluded, is_hedge=True)

    def vacate(self) -> None:
        """The engine has sent its last byte: others may have the slots while the rest is done."""
        self.unanswered.answered()
        self._grant = self.pool.vacate(self._grant)

    def usage_known(self, tokens: TokenUsage | None) -> None:
        """Say at the end what the request took; of one that nobody counted, None."""
        self.pool.queue.settle(self.service, tokens)
        if self._first_at is not None and tokens is not None and tokens.input:
            self._record_latencies(tokens, self._first_at - self.service.began_at)

    def token_received(self) -> None:
        """A token came."""
        if self.replica.consecutive_failures:
            self.pool.health.record_success(self.replica)
        if self._first_at is None:
            self.unanswered.answered()
            self._first_at = self.service.vacated_at or self.pool.now
            if self._grant.prefill_backlog:
                self._grant = self.pool.record_prefill_done(self._grant)
            if len(self.pool.ready) > 1:  # of one alone there is nobody to compare it with
                self.pool.health.record_first_token(
                    self.replica, self.request, self._first_at - self.service.began_at
                )

    def hedge_lost(self) -> None:
        """Another replica was faster: its organization pays no turn for it. One that was late says
        that it would have taken longer yet."""
        self.pool.queue.refund(self.service)
        seconds, late = self.pool.now - self.service.began_at, self.late_seconds
        if self._first_at is None and late is not None and seconds >= late:
            self.pool.health.record_first_token(self.replica, self.request, seconds)
            # As if all of the prompt had to be read: how much of it was cached is not known.
            self._record_latencies(TokenUsage(self.request.input_tokens), seconds)

    def replica_failed(self, *, is_at_fault: bool = False) -> None:
        """The replica failed, broke off or fell silent. What began before an incident that is
        already known, and breaks with it, is a part of that; what had a token is no suspect."""
        if self._incidents != self.replica.incidents:
            return
        if self._first_at is None and not is_at_fault:
            self.pool.health.suspect(self.replica, self.request.fingerprint)
        self.pool.health.record_incident(self.replica, self.request, is_at_fault=is_at_fault)

    def confirm_replica_fault(self) -> None:
        """What broke the replica was served by another: it was the replica's fault."""
        self.pool.health.confirm_replica_fault(self.replica, self.request.fingerprint)

    def _record_latencies(self, tokens: TokenUsage, first: float) -> None:
        """Say how long the first token took, and each of those after it."""
        if self.service.began_at < self.replica.slow_until:
            return  # It says nothing of how the replica fares since it was put out.
        made, each = tokens.output / self.request.sequences, None
        if made >= PACED_TOKENS_MIN:
            ended_at = self.service.vacated_at or self.pool.now
            each = (ended_at - self.service.began_at - first) / (made - 1)
            # Of several choices some may have ended long ago.
            if each > 0.0 and self.request.sequences == 1:
                self.pool.queue.slot_second.record_pace(1.0 / each)
        if len(self.pool.ready) > 1 or self.replica.slow_until:
            self.pool.health.record_latencies(self.replica, tokens, first, each)


async def wait_before(
    pools: list[Pool], request: SlotRequest, excluded: Collection[str]
) -> tuple[Pool, SlotGrant]:
    """Stand in line before each pool until one gives it a place; that takes it out of all lines.

    What it waits with counts in the first pool, what it runs with in the one that it runs in.
    Raises PoolError.
    """
    first, *others = pools
    if first.is_waking:
        request = replace(request, seconds_max=first.wake_seconds)
    waiter = first.queue.join(request, excluded, [pool.queue for pool in others])
    first.load_shedder.add(request)
    try:
        for pool in pools:
            pool.dispatch()
        if len(first.queue) == 1:
            first.on_demand()
        grant = await _wait_for_slot(waiter, pools)
    finally:
        first.load_shedder.remove(request)
    given = _pool_of(grant, pools)
    given.load_shedder.add(request)
    return given, grant


async def _wait_for_slot(waiter: Waiter, pools: Collection[Pool]) -> SlotGrant:
    try:
        async with asyncio.timeout(waiter.request.seconds_max):
            turn = await waiter.result
    except TimeoutError:
        if waiter.result.cancelled():
            raise _why_refused(waiter, pools) from None
        turn = waiter.result.result()
    except asyncio.CancelledError:
        _withdraw(waiter, pools)
        raise
    if isinstance(turn, PoolError):
        raise copy(turn)  # the first is kept by the waiter, which this frame keeps
    return turn


def _why_refused(waiter: Waiter, pools: Collection[Pool]) -> PoolError:
    """Return what to tell one whose deadline came before its turn."""
    first = next(iter(pools))
    refused = first.queue.give_up(waiter)
    has_ready = any(pool.has_ready_replica for pool in pools)
    return refused if has_ready else first.no_replica()


def _withdraw(waiter: Waiter, pools: Collection[Pool]) -> None:
    """The client left, maybe just as it was given a place."""
    if not waiter.result.done() or waiter.result.cancelled():
        waiter.leave()
    elif isinstance(grant := waiter.result.result(), SlotGrant):
        grant.queue.refund(grant.service)
        _pool_of(grant, pools).free(grant)


def _pool_of(grant: SlotGrant, pools: Collection[Pool]) -> Pool:
    """Return the pool that gave a place."""
    return next(pool for pool in pools if pool.queue is grant.queue)
