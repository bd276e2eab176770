"""The fair line: what organizations get of a busy pool, whatever they send."""

import asyncio
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.events import TokenUsage
from serving.pool.queue import Waiter
from serving.pool.slot_request import SlotRequest, TokenWeights
from serving.pool.tier_queue import QueueLimits, ServiceCharge, TierQueue

OUTPUT_MAX = 400
INPUT_MAX = 1_000
RATES = TokenWeights(cached_input=0.5, output=4.0)
COST_MAX = INPUT_MAX + OUTPUT_MAX * RATES.output
NO_BOUNDS = QueueLimits(10**9, 10**12, 10**9, 10**12)


@dataclass
class Busy:
    """A pool of so many slots, its line, and what each organization was served."""

    slots: int
    random: Random
    line: TierQueue = field(default_factory=lambda: TierQueue(NO_BOUNDS))
    running: list[ServiceCharge] = field(default_factory=list)
    served: dict[str, float] = field(default_factory=dict)

    def send(self, organization: str, weight: int, requests: int = 1) -> None:
        """Have requests stand in line."""
        for _ in range(requests):
            request = SlotRequest(
                organization,
                weight,
                input_tokens=self.random.randint(1, INPUT_MAX),
                output_tokens_max=OUTPUT_MAX,
                rates=RATES,
            )
            self.line.join(Waiter(request, (), asyncio.Future(loop=LOOP)))

    def fill(self) -> None:
        """Give every free slot to whose turn it is."""
        while len(self.running) < self.slots and (waiter := self.line.first()):
            self.running.append(self.line.serve(waiter))

    def end_one(self, output: int) -> None:
        """One of those that run ends, after so many tokens."""
        service = self.running.pop(self.random.randrange(len(self.running)))
        tokens = TokenUsage(input=service.request.input_tokens, output=output)
        self.line.settle(service, tokens)
        self.line.end(service)
        organization = service.tenant.tenant_id
        cost = service.request.rates.cost(tokens)
        self.served[organization] = self.served.get(organization, 0.0) + cost

    def work(self, requests: int, longest: dict[str, int]) -> None:
        """Work on so many requests; the answers of each organization have a length of their own."""
        for _ in range(requests):
            self.fill()
            organization = self.running[0].tenant.tenant_id
            self.end_one(self.random.randint(0, longest.get(organization, OUTPUT_MAX)))
        self.fill()


LOOP = asyncio.new_event_loop()
LOOP.close()


def future() -> asyncio.Future[Any]:
    """Return what a waiter of a line without a pool waits for."""
    return asyncio.Future(loop=LOOP)


ORGANIZATIONS = st.lists(st.integers(1, 4), min_size=2, max_size=5)


@settings(max_examples=60, deadline=None)
@given(ORGANIZATIONS, st.integers(1, 12), st.integers(0, 2**32), st.data())
def test_service_by_weight_differs_by_what_the_slots_hold_at_most(
    weights: list[int], slots: int, seed: int, data: st.DataObject
) -> None:
    busy = Busy(slots, Random(seed))
    names = [f"org_{number}" for number in range(len(weights))]
    longest = {name: data.draw(st.sampled_from((0, 10, OUTPUT_MAX))) for name in names}
    for name, weight in zip(names, weights, strict=True):
        busy.send(name, weight, requests=400)
    busy.work(300, longest)
    by_weight = [
        busy.served.get(name, 0.0) / weight for name, weight in zip(names, weights, strict=True)
    ]
    assert max(by_weight) - min(by_weight) <= 2 * (slots + 1) * COST_MAX / min(weights)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 2**32))
def test_no_flood_starves_one_who_comes_later(slots: int, floods: int, seed: int) -> None:
    busy = Busy(slots, Random(seed))
    for number in range(floods):
        busy.send(f"flood_{number}", 1, requests=500)
    busy.work(100, {})
    before = sum(busy.served.values())
    busy.send("quiet", 1)
    while not any(one.tenant.tenant_id == "quiet" for one in busy.running):
        busy.end_one(busy.random.randint(0, OUTPUT_MAX))
        busy.fill()
    assert sum(busy.served.values()) - before <= (floods + 1) * 2 * (slots + 1) * COST_MAX


def test_idle_time_is_not_saved_up() -> None:
    busy = Busy(1, Random(1))
    busy.send("busy", 1, requests=200)
    busy.work(100, {})
    busy.send("late", 1, requests=200)
    busy.served.clear()
    busy.work(60, {})
    assert abs(busy.served["busy"] - busy.served["late"]) <= 4 * COST_MAX


def test_who_leaves_for_a_moment_gains_nothing_by_it() -> None:
    busy = Busy(1, Random(1))
    busy.send("steady", 1, requests=300)
    for _ in range(100):
        busy.send("hopper", 1)  # never more than one in line
        busy.work(2, {"hopper": OUTPUT_MAX, "steady": OUTPUT_MAX})
    assert busy.served["hopper"] <= busy.served["steady"] + 4 * COST_MAX


def test_a_part_of_a_weight_gets_a_part_of_the_turns() -> None:
    busy = Busy(1, Random(1))
    for name in ("here", "everywhere"):
        busy.send(name, 1, requests=600)
    busy.line.set_weight_shares({"everywhere": 1 / 3, "unknown": 0.5})
    busy.work(400, {})
    assert 2.5 < busy.served["here"] / busy.served["everywhere"] < 3.5
    busy.line.set_weight_shares({})
    busy.served.clear()
    busy.work(400, {})
    assert 0.8 < busy.served["here"] / busy.served["everywhere"] < 1.25


PARTS = st.floats(0.0, 1.0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(PARTS, PARTS, st.integers(1, 9), st.integers(0, 400)), min_size=1))
def test_what_is_charged_at_one_part_is_settled_at_it(
    requests: list[tuple[float, float, int, int]],
) -> None:
    line, expected = TierQueue(NO_BOUNDS), 0.0
    keeper = line.serve_at_once(SlotRequest("a", rates=RATES))  # so that it is busy throughout
    line.settle(keeper, TokenUsage())
    for at_begin, at_end, weight, output in requests:
        line.set_weight_shares({"a": at_begin})
        request = SlotRequest("a", weight, output_tokens_max=OUTPUT_MAX, rates=RATES)
        service = line.serve_at_once(request)
        line.set_weight_shares({"a": at_end})
        tokens = TokenUsage(input=3, output=output)
        line.settle(service, tokens)
        line.end(service)
        expected += RATES.cost(tokens) / (weight * max(0.001, at_begin))
    assert keeper.tenant.counter == pytest.approx(expected)


def test_leaving_costs_the_same_however_many_wait() -> None:
    line = TierQueue(NO_BOUNDS)
    waiters = [Waiter(SlotRequest("a"), (), asyncio.Future(loop=LOOP)) for _ in range(50_000)]
    for waiter in waiters:
        line.join(waiter)
    Random(7).shuffle(waiters)
    began = time.thread_time()
    for waiter in waiters:
        line.remove(waiter)
    assert time.thread_time() - began < 5.0, "25 s where each looks through half of them"
    assert (len(line), line.tokens, line.first()) == (0, 0, None)


def test_nobody_is_remembered_for_ever() -> None:
    line = TierQueue(NO_BOUNDS)
    for number in range(12_000):
        service = line.serve_at_once(SlotRequest(f"org_{number}", input_tokens=5))
        line.settle(service, TokenUsage(input=5))
        line.end(service)
    assert len(line._idle) <= 10_000


def test_estimates_follow_an_organizations_own_answers() -> None:
    line = TierQueue(NO_BOUNDS)
    request = SlotRequest("a", input_tokens=100, output_tokens_max=1_000, rates=RATES)
    for _ in range(40):
        service = line.serve_at_once(request)
        line.settle(service, TokenUsage(input=100, output=10))
        line.end(service)
    assert line.serve_at_once(request).charged < 100 + 20 * RATES.output


def test_what_an_engine_failed_to_do_is_not_charged_and_what_nobody_counted_as_estimated() -> None:
    line = TierQueue(NO_BOUNDS)
    request = SlotRequest("a", input_tokens=100, output_tokens_max=50, rates=RATES)
    failed, uncounted = line.serve_at_once(request), line.serve_at_once(request)
    line.settle(failed, TokenUsage())
    line.settle(uncounted, None)
    assert uncounted.tenant.counter == uncounted.charged == 100 + 50 * RATES.output
