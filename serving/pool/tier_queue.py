"""The order within a tier: organizations take turns by the service they received.

Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI '24):
each organization counts what it was served, over its weight, and of those that wait the one with
the least goes next. Who begins to wait is lifted to the least of those that do, so that nobody
saves up turns. The service of a request is the larger of what its tokens cost and of what its
slots cost: slot-seconds times what one costs in the pool (`SlotSecondCost`). A request is
charged an estimate when it begins, its output by the mean of the organization's own answers (the
paper's prediction of lengths), then what it receives beyond that while it runs, a second ahead,
and is corrected once, at its end.

All organizations that never paid are one tenant, in which they take turns in the same way
(`Tenant.within`): who signs up fifty of them has one share.

Of two organizations that wait all the time, the service over the weight differs at most by what
all slots can hold and by what they make between two charges
(tests/serving/pool/test_service.py).
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from serving.contract.slot_shares import NEVER_PAID
from serving.engine.events import TokenUsage
from serving.pool.slot_request import SlotRequest, SlotSecondCost
from serving.pool.updatable_heap import UpdatableHeap

RECENT = 0.2
"""How much the latest answer counts in the mean length of answers."""


class Waiting(Protocol):
    """Whatever waits in the queue, for what it asks."""

    @property
    def request(self) -> SlotRequest:
        """What it asks for."""


Waiter = TypeVar("Waiter", bound=Waiting)


@dataclass(slots=True, eq=False)
class Tenant(Generic[Waiter]):
    """An organization, or all that never paid, which take turns `within`.

    `counter` is the service received, over the weight; `waiting` and `running` are slots.

    `weight_share` is how much of its weight counts at this gateway: where an organization waits at
    several, all of them together count it once.
    """

    tenant_id: str
    mean_output: float
    within: "TierQueue[Waiter] | None" = None
    weight: int = 1
    weight_share: float = 1.0
    counter: float = 0.0
    running: int = 0
    waiting: int = 0
    tokens: int = 0
    waiters: OrderedDict[Waiter, None] = field(default_factory=OrderedDict)

    @property
    def is_idle(self) -> bool:
        """Whether it neither waits nor is served."""
        return not self.waiters and not self.running

    @property
    def effective_weight(self) -> float:
        """Its weight, as far as it counts here."""
        return self.weight * self.weight_share

    def add(self, waiter: Waiter) -> None:
        """Put a request behind its others."""
        self.waiters[waiter] = None
        self.waiting += waiter.request.sequences
        self.tokens += waiter.request.input_tokens

    def remove(self, waiter: Waiter) -> None:
        """Take a request out, wherever it stands."""
        del self.waiters[waiter]
        self.waiting -= waiter.request.sequences
        self.tokens -= waiter.request.input_tokens

    def expected_output(self, request: SlotRequest) -> float:
        """Return how many tokens an answer probably has."""
        return min(request.output_tokens_max, self.mean_output * request.sequences)

    def record_output(self, tokens: float) -> None:
        """Take in how long an answer of one sequence was."""
        self.mean_output += RECENT * (tokens - self.mean_output)


class ServiceCharge(msgspec.Struct, eq=False):
    """One request being served, and what its organization was charged for it so far, all of it by
    the `effective_weight` of its start, whatever the organization's part is by then.

    `began_at` is monotonic seconds, and so is `vacated_at`, once its slots are free before it ends.
    `progress` returns the tokens that the engine has counted so far, None where it has counted
    none. A request that `is_settled` is charged nothing more.
    """

    tenant: Tenant[Any]
    request: SlotRequest
    charged: float
    effective_weight: float
    began_at: float = 0.0
    vacated_at: float | None = None
    progress: Callable[[], TokenUsage | None] | None = None
    is_settled: bool = False
    within: "ServiceCharge | None" = None
    """What its organization was charged among those that never paid."""


Likeness = tuple[float, int]
"""An organization's power, and how many slots it waits for."""


class TenantCounts:
    """Of one line."""

    def __init__(self) -> None:
        self._alike: Counter[Likeness] = Counter()
        self._likeness: dict[str, Likeness] = {}

    def __len__(self) -> int:
        return len(self._likeness)

    def record(self, member: Tenant[Any]) -> None:
        """Count an organization as it waits now, and no longer as it did."""
        before = self._likeness.pop(member.tenant_id, None)
        if before is not None:
            self._alike[before] -= 1
            if not self._alike[before]:
                del self._alike[before]
        if member.waiting:
            likeness = self._likeness[member.tenant_id] = (
                member.effective_weight,
                member.waiting,
            )
            self._alike[likeness] += 1

    def slots(self, own: Tenant[Any] | None, turns: float, more: float = 0.0) -> float:
        """Return how many slots all but one's own organization are given in so many turns, each
        of which waits for so many `more`."""
        slots = 0.0
        for (effective_weight, waiting), organizations in self._alike.items():
            slots += organizations * min(waiting + more, turns * effective_weight)
        if own is not None and own.waiting:
            slots -= min(own.waiting + more, turns * own.effective_weight)
        return slots


IDLE_MAX = 10_000
"""Organizations remembered that were served more than others and left."""
RECENT_OF_ALL = 0.02
PART_MIN = 0.001
GROWTH_STEPS = 2
"""Of working out how many come during a wait, which is longer for them."""
OUTPUT_TOKENS = 128.0
"""How long an answer is thought to be before the first was seen."""
CHARGE_SECONDS = 1.0
"""How often what runs is charged, and for how long ahead: else slots that become free in between
would all go to whoever was charged too little. A sequence makes less than 256 tokens in it."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait in a line: requests and their input tokens, of one organization and of
    all."""

    organization_requests: int = 512
    organization_tokens: int = 8_000_000
    requests: int = 2_048
    tokens: int = 32_000_000

    def fill(self, requests: int, tokens: int) -> float:
        """Return how much of what one organization may have waiting this is."""
        return max(requests / self.organization_requests, tokens / self.organization_tokens)


BOUNDS = QueueLimits()


class TierQueue(Generic[Waiter]):
    """Everything is O(log n) in the organizations that wait, leaving too; but for what is
    predicted, which is O(m) in the different numbers of slots that they wait for."""

    def __init__(
        self,
        bounds: QueueLimits = BOUNDS,
        slot_second: SlotSecondCost | None = None,
        *,
        is_within: bool = False,
    ) -> None:
        self._id = attrgetter("organization_id" if is_within else "tenant_id")
        """Of whose turn a request takes: within a tenant, of its organization's."""
        self.bounds = bounds
        self.slot_second = slot_second or SlotSecondCost()
        self.requests = 0
        self.tokens = 0
        self.slots = 0
        """Of those that wait,"""
        self.running = 0
        """and of those that are served."""
        self._busy: dict[str, Tenant[Waiter]] = {}
        self._idle: OrderedDict[str, Tenant] = OrderedDict()
        self._by_counter: UpdatableHeap[str] = UpdatableHeap()
        self._by_weight: UpdatableHeap[str] = UpdatableHeap()
        self._level = 0.0
        """The counter of whoever was served last, as it was before."""
        self._mean_output = OUTPUT_TOKENS
        self._newcomers = 0.0
        """The part of those who join whose organizations had nobody waiting."""
        self.changed: set[str] = set()
        """Organizations whose figures changed since somebody looked and cleared it."""
        self._tenant_counts = TenantCounts()
        self._services: dict[ServiceCharge, None] = {}
        """Those that are not settled."""

    def __len__(self) -> int:
        return self.requests

    def busy(self) -> Iterator[Tenant[Waiter]]:
        """Return the tenants that wait here or are served."""
        return iter(self._busy.values())

    def find(self, organization_id: str) -> tuple[Tenant[Waiter] | None, bool]:
        """Return a busy organization, if it is one, and whether it pays."""
        within = self._within()
        if within is not None and (member := within._busy.get(organization_id)) is not None:
            return member, False
        member = self._busy.get(organization_id)
        is_one = member is not None and member.within is None
        return (member if is_one else None), True

    def set_weight_shares(self, parts: Mapping[str, float], *, are_all: bool = True) -> None:
        """Say of which busy organizations only a part of the weight counts here: of all of them, or
        of those for which that has changed."""
        for organization_id in tuple(self._busy) if are_all else parts:
            if (member := self._busy.get(organization_id)) is not None:
                member.weight_share = max(PART_MIN, parts.get(organization_id, 1.0))
                self._tenant_counts.record(member)
        if (within := self._within()) is not None:
            within.set_weight_shares(parts, are_all=are_all)

    def is_full_of(self, request: SlotRequest) -> bool:
        """Tell whether its organization has as much waiting as one may."""
        member = self._busy.get(self._id(request))
        if member is None or not member.waiters:
            return False
        if member.within is not None:
            return member.within.is_full_of(request)
        requests, tokens = len(member.waiters) + 1, member.tokens + request.input_tokens
        return self.bounds.fill(requests, tokens) > 1.0

    def has_room(self, request: SlotRequest) -> bool:
        """Tell whether one more fits among all."""
        fits = self.tokens + request.input_tokens <= self.bounds.tokens
        return self.requests < self.bounds.requests and (fits or not self.requests)

    def eviction_candidate(self, request: SlotRequest) -> Waiter | None:
        """Return the request to give up for one more: the last of the organization that has the
        most waiting for its weight. None where that is the request's own."""
        heaviest, own = self._heaviest(), self._busy.get(self._id(request))
        if heaviest is None:
            return None
        if heaviest is own and own.within is not None:
            return own.within.eviction_candidate(request)
        requests = len(own.waiters) if own else 0
        is_newcomer = not requests and len(heaviest.waiters) > 1
        fill = self.bounds.fill(requests + 1, (own.tokens if own else 0) + request.input_tokens)
        if not is_newcomer and fill / max(1, request.weight) >= self._heaviness(heaviest):
            return None
        while heaviest.within is not None and (inner := heaviest.within._heaviest()) is not None:
            heaviest = inner
        return next(reversed(heaviest.waiters))

    def join(self, waiter: Waiter, passed: Collection[str] = ()) -> None:
        """Stand in line. An organization that had nobody waiting is lifted to those whose turn may
        come: not to those that others have `passed`, whose counters stay low meanwhile."""
        member = self._enter(waiter.request)
        self._newcomers += RECENT_OF_ALL * ((not member.waiters) - self._newcomers)
        if not member.waiters:
            self._lift(member, passed)
            self._by_counter.put(member.tenant_id, member.counter)
        member.add(waiter)
        if member.within is not None:
            member.within.join(waiter, passed)
        self._note_waiting(member, 1, waiter.request)

    def remove(self, waiter: Waiter) -> None:
        """Step out of line; harmless when one is not in it."""
        member = self._busy.get(self._id(waiter.request))
        if member is None or waiter not in member.waiters:
            return
        member.remove(waiter)
        if member.within is not None:
            member.within.remove(waiter)
        if not member.waiters:
            self._by_counter.drop(member.tenant_id)
        self._note_waiting(member, -1, waiter.request)
        self._rest(member)

    def first(self, but: Collection[str] = ()) -> Waiter | None:
        """Return whose turn it is, `but` some organizations."""
        tenant_id = self._by_counter.first(self._passed(but))
        if tenant_id is None:
            return None
        member = self._busy[tenant_id]
        return next(iter(member.waiters)) if member.within is None else member.within.first(but)

    def slots_before(self, request: SlotRequest, growth: float = 0.0) -> float:
        """Return how many slots are given to others before a request that comes now has its turn:
        to each organization as many, by the weights, as to its own until then.

        Meanwhile others may come, `growth` slots for each that is given: newcomers, each of whom
        goes before all but an organization's first, and more of those that wait.
        """
        own = self._busy.get(self._id(request))
        waiting: float = own.waiting if own else 0
        if own is not None and own.within is not None:
            waiting = own.within.slots_before(request, growth)
        turns = (waiting + request.sequences) / (
            own.effective_weight if own else max(1, request.weight)
        )
        before = waiting + self._tenant_counts.slots(own, turns)
        for _ in range(GROWTH_STEPS if waiting else 0):
            new = growth * before * self._newcomers
            more = (growth * before - new) / len(self._tenant_counts)
            before = waiting + self._tenant_counts.slots(own, turns, more)
            before += new * waiting / (waiting + request.sequences)
        return before

    def serve(self, waiter: Waiter) -> ServiceCharge:
        """Begin to serve a request whose turn it is."""
        member = self._busy[self._id(waiter.request)]
        member.remove(waiter)
        if not member.waiters:
            self._by_counter.drop(member.tenant_id)
        self._note_waiting(member, -1, waiter.request)
        service = self._begin(member, waiter.request)
        if member.within is not None:
            service.within = member.within.serve(waiter)
        return service

    def serve_at_once(self, request: SlotRequest) -> ServiceCharge:
        """Begin to serve a request that need not wait."""
        member = self._enter(request)
        if not member.waiters:
            self._lift(member)
        service = self._begin(member, request)
        if member.within is not None:
            service.within = member.within.serve_at_once(request)
        return service

    def charge_running(self, now: float) -> None:
        """Charge what requests that run have received until `now`, and may receive in the next
        second, beyond what they were charged."""
        charged = dict[Tenant[Any], None]()
        for service in self._services:
            if service.vacated_at is not None:
                continue  # It is corrected soon, and takes no more.
            request, progress = service.request, service.progress
            each_second = request.sequences * self.slot_second.at(request.rates)
            cost = float(round((now - service.began_at) * each_second))
            if progress is not None and (tokens := progress()) is not None:
                cost = max(cost, request.rates.cost(tokens))
            most = request.input_tokens + request.output_tokens_max * request.rates.output
            cost = max(cost, min(cost + CHARGE_SECONDS * each_second, most))
            if cost > service.charged:
                service.tenant.counter += (cost - service.charged) / service.effective_weight
                service.charged = cost
                charged[service.tenant] = None
            within, own = service.tenant.within, service.within
            if within is not None and own is not None and cost > own.charged:
                within._charge(own.tenant, (cost - own.charged) / own.effective_weight)
                own.charged = cost
        for member in charged:
            self._charge(member, 0.0)  # Once for all of its requests: its turn may be another now.

    def settle(
        self, service: ServiceCharge, tokens: TokenUsage | None, time_cost: float = 0.0
    ) -> None:
        """Correct, once, what a request was charged to what it really took: the larger of what its
        tokens cost and of `time_cost`, what its slots did. Of one that nobody counted it stays what
        it was charged: who leaves before the engine says what it made held a slot all the same."""
        if service.is_settled:
            return
        member, request = service.tenant, service.request
        cost = service.charged if tokens is None else request.rates.cost(tokens)
        cost = max(cost, time_cost)
        if tokens is not None and tokens.input:
            each = tokens.output / request.sequences
            member.record_output(each)
            self._mean_output += RECENT_OF_ALL * (each - self._mean_output)
        self._charge(member, (cost - service.charged) / service.effective_weight)
        service.charged, service.is_settled, service.progress = cost, True, None
        self._services.pop(service, None)
        if member.within is not None and service.within is not None:
            member.within.settle(service.within, tokens, time_cost)

    def end(self, service: ServiceCharge) -> None:
        """A request's slots are free again; what it was charged stays, if nobody settled it."""
        self._services.pop(service, None)
        member = service.tenant
        member.running -= service.request.sequences
        self.running -= service.request.sequences
        self.changed.add(member.tenant_id)
        if member.within is not None and service.within is not None:
            member.within.end(service.within)
        self._rest(member)

    def _within(self) -> "TierQueue[Waiter] | None":
        shared = self._busy.get(NEVER_PAID)
        return None if shared is None else shared.within

    def _passed(self, passed: Collection[str]) -> Collection[str]:
        """Return which tenants others have passed: all that never paid where each of them is."""
        if passed and (within := self._within()) is not None and within.first(passed) is None:
            return {*passed, NEVER_PAID}
        return passed

    def _heaviest(self) -> Tenant[Waiter] | None:
        tenant_id = self._by_weight.first()
        return None if tenant_id is None else self._busy[tenant_id]

    def _enter(self, request: SlotRequest) -> Tenant[Waiter]:
        """Return the organization of a request, which is busy from now on."""
        tenant_id = self._id(request)
        member = self._busy.get(tenant_id) or self._idle.pop(tenant_id, None)
        if member is None:
            member = Tenant[Waiter](tenant_id, self._mean_output)
            if tenant_id == NEVER_PAID:
                member.within = TierQueue(self.bounds, self.slot_second, is_within=True)
                member.within.changed = self.changed
        if member.weight != (weight := max(1, request.weight)):
            member.weight = weight
            self._tenant_counts.record(member)
        self._busy[tenant_id] = member
        return member

    def _begin(self, member: Tenant[Any], request: SlotRequest) -> ServiceCharge:
        """Charge the estimate: of the output at least what may be made in a second."""
        self._level = max(self._level, member.counter)
        price = request.rates.output
        soon = CHARGE_SECONDS * request.sequences * self.slot_second.at(request.rates)
        made = max(member.expected_output(request) * price, soon)
        cost = request.input_tokens + min(made, request.output_tokens_max * price)
        member.running += request.sequences
        self.running += request.sequences
        self.changed.add(member.tenant_id)
        self._charge(member, cost / member.effective_weight)
        service = ServiceCharge(member, request, cost, member.effective_weight)
        self._services[service] = None
        return service

    def _charge(self, member: Tenant[Any], service: float) -> None:
        member.counter += service
        if member.waiters:
            self._by_counter.put(member.tenant_id, member.counter)

    def _lift(self, member: Tenant[Any], passed: Collection[str] = ()) -> None:
        least = self._by_counter.least(self._passed(passed))
        member.counter = max(member.counter, self._level if least is None else least)

    def _note_waiting(self, member: Tenant[Any], requests: int, request: SlotRequest) -> None:
        self.requests += requests
        self.tokens += requests * request.input_tokens
        self.slots += requests * request.sequences
        self.changed.add(member.tenant_id)
        self._tenant_counts.record(member)
        if member.waiters:
            self._by_weight.put(member.tenant_id, -self._heaviness(member))
        else:
            self._by_weight.drop(member.tenant_id)

    def _heaviness(self, member: Tenant[Any]) -> float:
        return self.bounds.fill(len(member.waiters), member.tokens) / member.weight

    def _rest(self, member: Tenant[Any]) -> None:
        """Remember of who has nothing here any more what it was served beyond others, if it was."""
        if not member.is_idle:
            return
        del self._busy[member.tenant_id]
        member.weight_share = 1.0
        if member.counter > self._level:
            self._idle[member.tenant_id] = member
            if len(self._idle) > IDLE_MAX:
                self._idle.popitem(last=False)
