"""The queue before a pool: a fair queue for each tier, and turns among tiers by their shares of
the slots, over time where that is less than one."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from serving.contract.tiers import DEFAULT_GUARANTEES, Guarantees
from serving.contract.units import TIERS, Tier
from serving.engine.events import NO_TOKENS, TokenUsage
from serving.pool.kv_cache import KvNeed
from serving.pool.overload import SlotRate, TierLoad, WaitPredictor
from serving.pool.prefix_history import BLOCK_BYTES
from serving.pool.replicas import Replica
from serving.pool.slot_request import (
    Cause,
    PoolError,
    PoolOverloaded,
    SlotRequest,
    SlotSecondCost,
    TenantQueueFull,
)
from serving.pool.tier_queue import (
    CHARGE_SECONDS,
    OUTPUT_TOKENS,
    QueueLimits,
    ServiceCharge,
    TierQueue,
)

EQUAL = 0.25
"""How far apart two tiers' slots divided by their shares may be to count as equal: by less than a
slot."""


class TierTurns:
    """Turns among the tiers of one gateway; `shares` of its slots are what tiers keep while they
    have work.

    The tier that has the fewest slots for its share is next. Where that says nothing, as fewer
    requests run than there are tiers, service decides: slot-seconds divided by the share. A tier
    without a slot that received more of it than others counts as if it had one (start-time fair
    queueing, Goyal et al., SIGCOMM '96). No tier is ahead of others by what it received while
    nobody waited, nor by more than what it received last.
    """

    def __init__(self) -> None:
        self.shares: Guarantees = DEFAULT_GUARANTEES
        self._running = dict.fromkeys(TIERS, 0)
        self._service = dict.fromkeys(TIERS, 0.0)
        self._last = dict.fromkeys(TIERS, 0.0)
        """Of the service, what came last without a change of the tier's slots."""
        self._at = dict.fromkeys(TIERS, 0.0)
        """When a tier's slots changed, in monotonic seconds: its service is counted up to then."""

    def record(self, tier: Tier, running: int, now: float) -> None:
        """From now on a tier has so many slots."""
        before, share = self._running[tier], self.shares[tier]
        if before and share and now > self._at[tier]:
            self._last[tier] = received = before * (now - self._at[tier]) / share
            self._service[tier] += received
        self._running[tier], self._at[tier] = running, now

    def begin_to_wait(self, now: float) -> None:
        """Somebody waits from now on, and nobody did: what tiers received before counts no more."""
        for tier in TIERS:
            self._service[tier] = self._last[tier] = 0.0
            if self._running[tier]:
                self._at[tier] = now

    def next_of(self, waiting: Collection[Tier], now: float) -> Tier:
        """Return which of the tiers that wait, the most urgent first, has the fewest slots for its
        share; of equal ones which had the least service, and of these the longest ago. A tier
        without a share is next where no other waits.

        Giving each free slot to that tier divides all slots as `serving.contract.tiers` says.
        """
        service = self._service_of(waiting, now)
        if not service:
            return next(iter(waiting))
        least, levels = min(service.values()), dict[Tier, float]()
        for tier, received in service.items():
            levels[tier] = (self._running[tier] or received > least) / self.shares[tier]
        highest = min(levels.values()) + EQUAL
        equal = [tier for tier in levels if levels[tier] <= highest]
        if len(equal) == 1:
            return equal[0]
        return min(equal, key=lambda tier: (service[tier], self._at[tier]))

    def _service_of(self, waiting: Collection[Tier], now: float) -> dict[Tier, float]:
        """Return the service of those with a share, lifted to where none without a slot is ahead of
        others by more than it received last."""
        service, floor = dict[Tier, float](), 0.0
        for tier in waiting:
            if share := self.shares[tier]:
                service[tier] = received = self._service[tier]
                if running := self._running[tier]:
                    service[tier] += running * (now - self._at[tier]) / share
                elif received - self._last[tier] > floor:
                    floor = received - self._last[tier]
        for tier, received in service.items():
            if received < floor:
                self._service[tier] += floor - received
                service[tier] = floor
        return service


RECENT_ANSWER = 0.2
"""How much the latest answer counts in the mean length of an organization's."""
ORGANIZATIONS_MAX = 10_000
"""Whose answers are remembered."""


class AnswerLengths:
    """How many tokens an answer of one sequence has, on the mean of late: an organization's, and
    for one that is not known, of all."""

    def __init__(self) -> None:
        self._mean = OUTPUT_TOKENS
        self._of: OrderedDict[str, float] = OrderedDict()

    def expected(self, request: SlotRequest) -> int:
        """Return how many tokens all sequences of a request probably make."""
        each = self._of.get(request.organization_id, self._mean)
        return min(request.output_tokens_max, ceil(each * request.sequences))

    def record(self, request: SlotRequest, tokens: int) -> None:
        """Take in how many tokens all sequences of a request made."""
        each, known = tokens / request.sequences, self._of.pop(request.organization_id, self._mean)
        self._of[request.organization_id] = known + RECENT_ANSWER * (each - known)
        self._mean += RECENT * (each - self._mean)
        if len(self._of) > ORGANIZATIONS_MAX:
            self._of.popitem(last=False)


NOBODY: Mapping[Tier, Collection[str]] = {}
KV_SEEN_MIN = 4
"""How many of a request's size have to have been given room for its wait to be foretold."""
SURE = 0.85
"""How much of the time that one may wait its wait may be predicted to take: others come, and
answers are of any length."""
RECENT = 0.02
"""How much the latest prompt counts in the mean bytes of a token."""
TOKEN_BYTES_MIN, TOKEN_BYTES_MAX = 2.0, 8.0
"""Whatever prompts an organization sends, those of others are taken for half or twice their size at
most."""


class SlotGrant(NamedTuple):
    """A replica's slots for one request: the queue that gave them, what they count for its
    organization, and how many blocks of its prompt are read before it is answered."""

    queue: "FairQueue"
    replica: Replica
    service: ServiceCharge
    prefill_backlog: int = 0


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that waits in each of `queues`; `result` is done when its wait is over, one way or
    the other."""

    request: SlotRequest
    excluded: Collection[str]
    result: asyncio.Future[SlotGrant | PoolError]
    queues: list["FairQueue"] = field(default_factory=list)

    def leave(self) -> None:
        """Step out of all lines; harmless when one is in none."""
        for queue in self.queues:
            queue.remove(self)


class FairQueue:
    """Bounded by what waits, tier by tier, and by how long that would take. `clock` is monotonic
    seconds.

    A request that may be worked on in several pools stands in line before each of them, by the
    bounds of the one that it comes to. The first that has a place for it takes it out of all lines.
    """

    def __init__(self, clock: Callable[[], float], bounds: QueueLimits) -> None:
        self.refusals: Counter[tuple[Tier, Cause]] = Counter()
        self.slot_second = SlotSecondCost()
        self.tier_queues: dict[Tier, TierQueue[Waiter]] = {
            tier: TierQueue(bounds, self.slot_second) for tier in TIERS
        }
        self._pace = WaitPredictor()
        self.guarantees = DEFAULT_GUARANTEES
        self._turns = TierTurns()
        self._is_served = True
        self._is_held_back = False
        self.has_kv_bound = False
        """Whether lengths of answers are wanted, to foretell what requests take of KV caches."""
        self._waits_for_kv = 0
        self._kv_rate = SlotRate()
        """Of tokens of KV caches, while somebody waited for room in one."""
        self._kv_at = 0.0
        self._answers = AnswerLengths()
        self.passed: Mapping[Tier, Collection[str]] = NOBODY
        """Of each tier, the organizations whose turn others were given at the last free slot."""
        self._charged_at = 0.0
        self.token_bytes = 4.0
        """Of a prompt as JSON, on average of late."""
        self._by_urgency = tuple(self.tier_queues.values())
        self._unwanted: dict[ServiceCharge, Callable[[], None]] = {}
        """Requests that run though their clients left, and what ends them."""
        self._clock = clock

    def __len__(self) -> int:
        return sum(map(len, self.tier_queues.values()))

    @property
    def is_waited(self) -> bool:
        """Whether anybody waits."""
        return sum([line.requests for line in self._by_urgency]) > 0

    @property
    def has_multi_sequence_waiter(self) -> bool:
        """Whether a request for several slots waits."""
        return any(line.slots > line.requests for line in self._by_urgency)

    def is_first(self, tier: Tier) -> bool:
        """Tell whether one that comes now need not wait for others: `batch` lets all pass."""
        waiting = sum([line.requests for line in self._by_urgency])
        return waiting == (0 if tier == "batch" else self.tier_queues["batch"].requests)

    def serve_at_once(self, request: SlotRequest) -> ServiceCharge:
        """Count one that need not wait."""
        is_waited = self._look()
        self._pace.record_arrival(request.tier, request.sequences)
        if is_waited:
            self._pace.record_grant(request.sequences, for_reserved=self._is_held_back)
        return self._begun(self.tier_queues[request.tier].serve_at_once(request))

    def join(
        self, request: SlotRequest, excluded: Collection[str], others: Sequence["FairQueue"] = ()
    ) -> Waiter:
        """Stand in line, and in those of others. Raises PoolOverloaded, or has another give up its
        place."""
        queues = [self, *others]
        for queue in queues:
            queue._look()
        if self.tier_queues[request.tier].is_full_of(request):
            raise self._refused(
                request, TenantQueueFull(self._seconds_for(request.sequences, request.tier))
            )
        seconds = min(queue._seconds_until(request) for queue in queues)
        late = seconds - SURE * request.seconds_max
        if late > 0:
            raise self._refused(request, PoolOverloaded("too_long", late))
        self._make_room(request)
        waiter = Waiter(request, excluded, asyncio.get_running_loop().create_future(), queues)
        for queue in queues:
            if not queue.is_waited:
                queue._turns.begin_to_wait(self._clock())
            queue._pace.record_arrival(request.tier, request.sequences)
            queue.tier_queues[request.tier].join(waiter, queue.passed.get(request.tier, ()))
            queue.end_unwanted()
        return waiter

    def shed(self, request: SlotRequest) -> PoolOverloaded:
        """Return what to tell one that is not let in, as too much waits or runs already."""
        return self._refused(request, PoolOverloaded("pressed", self._seconds_until(request)))

    def remove(self, waiter: Waiter) -> None:
        """Step out of this line; harmless when one is not in it."""
        self._look()
        self.tier_queues[waiter.request.tier].remove(waiter)

    def give_up(self, waiter: Waiter) -> PoolOverloaded:
        """Return what to tell one whose deadline came before its turn."""
        request = waiter.request
        waiter.leave()
        late = self._seconds_until(request) - request.seconds_max
        return self._refused(request, PoolOverloaded("waited", late))

    def first(self, but: Mapping[Tier, Collection[str]] = NOBODY) -> Waiter | None:
        """Return whose turn it is, `but` some organizations of each tier, which keep theirs."""
        self._look()
        heads = {}
        for tier, line in self.tier_queues.items():
            if line.requests:
                head = self._head(line, but.get(tier, ()))
                if head is not None:
                    heads[tier] = head
        if len(heads) <= 1:
            return next(iter(heads.values()), None)
        return heads[self._turns.next_of(heads, self._clock())]

    def _head(self, line: TierQueue[Waiter], but: Collection[str]) -> Waiter | None:
        """Return whose turn it is in a line; one whose client left just now is passed over."""
        while (waiter := line.first(but)) is not None and waiter.result.done():
            line.remove(waiter)
        return waiter

    def serve(self, waiter: Waiter) -> ServiceCharge:
        """Begin to serve one that waits: all lines in which it stands move on."""
        request = waiter.request
        for queue in waiter.queues:
            queue._look()
            if queue._waits_for_kv:
                queue._kv_rate.slots += queue.kv_need(request).tokens
            else:
                queue._pace.record_grant(request.sequences, for_reserved=queue._is_held_back)
            if queue is not self:
                queue.remove(waiter)
        return self._begun(self.tier_queues[request.tier].serve(waiter))

    def settle(self, service: ServiceCharge, tokens: TokenUsage | None) -> None:
        """Charge what one really took, by its tokens or by its time; None where nobody counted."""
        request, now = service.request, self._clock()
        if service.is_settled:
            return
        until = now if service.vacated_at is None else service.vacated_at
        slot_seconds = request.sequences * (until - service.began_at)
        # Whole, so that requests that cost the same count the same.
        time_cost = round(slot_seconds * self.slot_second.at(request.rates))
        self.tier_queues[request.tier].settle(service, tokens, time_cost)
        if tokens is not None and tokens.input:
            self.slot_second.record(request.rates.cost(tokens), slot_seconds, now)
            if request.prompt_bytes:
                each = request.prompt_bytes / tokens.input
                each = min(TOKEN_BYTES_MAX, max(TOKEN_BYTES_MIN, each))
                self.token_bytes += RECENT * (each - self.token_bytes)
            if self.has_kv_bound:
                self._answers.record(request, tokens.output)

    def refund(self, service: ServiceCharge) -> None:
        """Charge nothing for one: its organization has nothing of it."""
        self.tier_queues[service.request.tier].settle(service, NO_TOKENS)

    def set_unwanted(self, service: ServiceCharge, end: Callable[[], None]) -> None:
        """The client of a request that runs has left: `end` is called as soon as somebody waits
        here, which may be now. It frees the slots a moment later."""
        if service.is_settled or service.vacated_at is not None:
            return  # It has no slots any more.
        if self.is_waited:
            end()
        else:
            self._unwanted[service] = end

    def end_unwanted(self) -> None:
        """End the requests whose clients left: their slots are wanted."""
        unwanted, self._unwanted = self._unwanted, {}
        for end in unwanted.values():
            end()

    def end(self, service: ServiceCharge) -> None:
        """One is served no more."""
        self._unwanted.pop(service, None)
        tier = service.request.tier
        self.tier_queues[tier].end(service)
        self._turns.record(tier, self.tier_queues[tier].running, self._clock())

    def _begun(self, service: ServiceCharge) -> ServiceCharge:
        tier = service.request.tier
        service.began_at = now = self._clock()
        self._turns.record(tier, self.tier_queues[tier].running, now)
        return service

    def set_served(self, is_served: bool) -> None:
        """Say whether anybody is served at all: a wait for the first replica says nothing of how
        fast the queue moves once it is there."""
        self._look()
        self._is_served = is_served

    def set_held_back(self, is_held_back: bool, waits_for_kv: int = 0) -> None:
        """Say whether only `batch` waits, and for slots that are kept free of it: that tells
        nothing of how fast the queue moves for other tiers. Nor does a wait for room for so many
        tokens in a KV cache beside free slots: others go first meanwhile."""
        if (is_held_back, waits_for_kv) != (self._is_held_back, self._waits_for_kv):
            self._look()
            self._is_held_back, self._waits_for_kv = is_held_back, waits_for_kv
            self._kv_at = self._clock()

    def kv_need(self, request: SlotRequest) -> KvNeed:
        """Return what a request probably takes of a KV cache."""
        output, blocks = self._answers.expected(request), request.prefix_blocks
        tokens = request.input_tokens
        if not blocks:
            return KvNeed(tokens + output, output)
        each = tokens * BLOCK_BYTES // max(1, request.prompt_bytes)
        return KvNeed(tokens + output, output, blocks, min(each, tokens // len(blocks)))

    def set_shares(self, guarantees: Guarantees, shares: Mapping[Tier, float]) -> None:
        """Say what tiers are guaranteed of all slots, and which part of this gateway's some keep
        now."""
        self.guarantees, self._turns.shares = guarantees, {**guarantees, **shares}

    def set_weight_shares(self, parts: Mapping[str, float], *, are_all: bool = True) -> None:
        """Say of which organizations only a part of the weight counts here, `are_all` or those for
        which that has changed."""
        for line in self.tier_queues.values():
            line.set_weight_shares(parts, are_all=are_all)

    def reject_all(self, error: PoolError) -> None:
        """Tell all that wait that they wait in vain here: who stands in another line goes on."""
        for line in self._by_urgency:
            while (waiter := self._head(line, ())) is not None:
                self.remove(waiter)
                waiter.queues.remove(self)
                if not waiter.queues:
                    waiter.result.set_result(error)

    def _make_room(self, request: SlotRequest) -> None:
        line, outweighed = self.tier_queues[request.tier], list[Waiter]()
        while not line.has_room(request):
            waiter = line.eviction_candidate(request)
            if waiter is None:
                for one in reversed(outweighed):
                    line.join(one)
                seconds = self._seconds_for(request.sequences, request.tier)
                raise self._refused(request, PoolOverloaded("queue_full", seconds))
            line.remove(waiter)
            outweighed.append(waiter)
        for waiter in outweighed:
            waiter.leave()
            if not waiter.result.done():
                late = self._seconds_until(waiter.request)
                refused = self._refused(waiter.request, PoolOverloaded("outweighed", late))
                waiter.result.set_result(refused)

    def _refused(self, request: SlotRequest, error: PoolOverloaded) -> PoolOverloaded:
        self.refusals[request.tier, error.reason] += 1
        return error

    def _look(self) -> bool:
        """Let time pass; return whether anybody waits to be served. What runs is charged before
        anybody is lifted to others or has its turn."""
        is_waited = self._is_served and self.is_waited and not self._waits_for_kv
        now = self._clock()
        self._pace.advance(now, waited=is_waited, for_reserved=self._is_held_back)
        if self._waits_for_kv:
            self._kv_rate.wait(now - self._kv_at)
            self._kv_at = now
        if now - self._charged_at >= CHARGE_SECONDS:
            self._charged_at = now
            for line in self._by_urgency:
                line.charge_running(now)
        return is_waited

    def _seconds_until(self, request: SlotRequest) -> float:
        """Return how long one that comes now would wait for turns in its own tier."""
        growth = self._pace.growth(request.tier, self.guarantees)
        turns = self.tier_queues[request.tier].slots_before(request, growth)
        seconds = self._seconds_for(turns, request.tier)
        if self._waits_for_kv:
            seconds = max(seconds, self._kv_seconds_for(turns, request))
        return seconds

    def _kv_seconds_for(self, slots: float, request: SlotRequest) -> float:
        """Return how long a request probably waits for room in a KV cache, after so many slots of
        its own tier; 0 while too little was seen to tell, and for one that is smaller than what
        waits: it may pass. Other tiers count as if they took nothing, so that what they hold
        refuses no request."""
        tokens, line = self.kv_need(request).tokens, self.tier_queues[request.tier]
        pace = self._kv_rate.per_second
        is_seen = self._kv_rate.slots >= KV_SEEN_MIN * tokens
        if tokens < self._waits_for_kv or not (pace and is_seen):
            return 0.0
        return (slots * line.tokens / max(1, line.slots) + tokens) / pace

    def _seconds_for(self, slots: float, tier: Tier) -> float:
        loads = {
            other: TierLoad(line.running, line.slots) for other, line in self.tier_queues.items()
        }
        return self._pace.seconds_for(slots, tier, loads, self.guarantees)
