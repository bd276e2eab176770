"""What requests are charged, while they run and at their end, and what turns that leaves others."""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.units import TIERS
from serving.engine.events import TokenUsage
from serving.pool.pool import Pool
from serving.pool.queue import FairQueue, Waiter
from serving.pool.slot_request import SlotRequest, SlotSecondCost, TokenWeights
from serving.pool.tier_queue import CHARGE_SECONDS, ServiceCharge, TierQueue
from tests.fixtures.catalog import replica
from tests.serving.pool.test_fairness import NO_BOUNDS, future

RATES = TokenWeights(cached_input=0.5, output=4.0)
SLOT_SECOND_COST = 200.0


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def queue_with_mean(clock: Clock, cost: float = SLOT_SECOND_COST) -> FairQueue:
    """Return a queue of which one ended request says what a slot-second costs."""
    queue = FairQueue(clock, NO_BOUNDS)
    service = queue.serve_at_once(SlotRequest("first", rates=RATES))
    clock.now += 10.0
    queue.settle(service, TokenUsage(input=int(10 * cost)))
    queue.end(service)
    return queue


@pytest.mark.parametrize(
    ("tokens", "sequences", "seconds", "service"),
    [
        (TokenUsage(input=1_000, cached_input=400, output=200), 1, 1.0, 1_600.0),
        (TokenUsage(input=1_000, cached_input=400, output=200), 1, 10.0, 2_000.0),
        (TokenUsage(input=10, output=8), 8, 5.0, 8_000.0),
        (TokenUsage(), 1, 5.0, 1_000.0),
    ],
    ids=["tokens cost more", "slot time costs more", "each choice has a slot", "nothing made"],
)
def test_service_is_the_larger_of_what_tokens_and_slots_cost(
    tokens: TokenUsage, sequences: int, seconds: float, service: float
) -> None:
    clock = Clock()
    queue = queue_with_mean(clock)
    one = queue.serve_at_once(
        SlotRequest("a", sequences=sequences, rates=RATES, output_tokens_max=1_000)
    )
    clock.now += seconds
    queue.settle(one, tokens)
    assert one.charged == one.tenant.counter == pytest.approx(service)
    queue.settle(one, TokenUsage(input=10**6))
    assert one.charged == one.tenant.counter == pytest.approx(service), "corrected once"


def test_a_request_is_charged_while_it_runs_a_second_ahead() -> None:
    clock = Clock()
    queue = queue_with_mean(clock)
    request = SlotRequest("a", sequences=2, input_tokens=100, output_tokens_max=10**6, rates=RATES)
    queue.tier_queues["default"]._mean_output = 1.0
    one = queue.serve_at_once(request)
    assert one.charged == one.tenant.counter == 100 + 2 * SLOT_SECOND_COST
    for second in range(1, 4):
        clock.now += CHARGE_SECONDS
        queue.serve_at_once(SlotRequest("b"))
        assert one.charged == one.tenant.counter == (second + 1) * 2 * SLOT_SECOND_COST
    one.progress = lambda: TokenUsage(input=100, output=500)
    clock.now += CHARGE_SECONDS
    queue.serve_at_once(SlotRequest("b"))
    assert one.charged == one.tenant.counter == 2_100 + 2 * SLOT_SECOND_COST
    clock.now += CHARGE_SECONDS / 4
    queue.settle(one, TokenUsage(input=100, cached_input=100, output=500))
    assert one.charged == one.tenant.counter == 2_050


def test_what_is_refunded_costs_nothing_though_it_ran() -> None:
    clock = Clock()
    queue = queue_with_mean(clock)
    one = queue.serve_at_once(SlotRequest("a", rates=RATES))
    clock.now += 60.0
    queue.serve_at_once(SlotRequest("b"))
    queue.refund(one)
    assert one.tenant.counter == 0.0


def test_slots_held_idle_cost_what_a_sequence_makes_however_many_they_are() -> None:
    slot_second = SlotSecondCost()
    assert slot_second.at(RATES) == 0.0
    slot_second.record_pace(50.0)
    slot_second.record(300.0, 1.0, 0.0)
    assert slot_second.at(RATES) == pytest.approx(300.0), "long prompts cost more than their slots"
    for second in range(1_000):
        slot_second.record(0.0, 100.0, second)
        slot_second.record(300.0, 1.0, second)
    assert slot_second.at(RATES) == pytest.approx(50.0 * RATES.output)


def test_the_mean_follows_what_slots_cost_of_late() -> None:
    slot_second = SlotSecondCost()
    for second in range(600):
        slot_second.record(9_000.0, 1.0, second)
    for second in range(600, 1_500):
        slot_second.record(100.0, 1.0, second)
    assert slot_second.at(RATES) == pytest.approx(100.0, rel=0.01)


async def test_a_slot_that_nobody_settles_is_charged_by_its_progress() -> None:
    clock = Clock()
    pool = Pool("dep", clock=clock)
    pool.set_replicas({"rep_1": replica("http://r1", 1, slots=4)})
    request = SlotRequest("a", input_tokens=10, output_tokens_max=30_000, rates=RATES)
    with pytest.raises(RuntimeError):
        async with pool.slot(request) as slot:
            slot.service.progress = lambda: TokenUsage(input=10, output=9_000)
            raise RuntimeError("the client takes nothing")
    assert slot.service.charged == 36_010.0


def test_bytes_of_a_token_are_averaged_within_bounds() -> None:
    queue = FairQueue(Clock(), NO_BOUNDS)
    for tokens, expected in ((100, 3.0), (10_000, 2.0), (1, 8.0)):
        for _ in range(400):
            service = queue.serve_at_once(SlotRequest("a", prompt_bytes=300))
            queue.settle(service, TokenUsage(input=tokens))
            queue.end(service)
        assert queue.token_bytes == pytest.approx(expected, rel=0.01)


# ---- The sum of charges ----

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("begin", "wait", "turn", "make", "pass", "share", "settle", "refund")),
        st.integers(0, 50),
        st.floats(0.0, 3.0),
    ),
    max_size=80,
)


@dataclass
class Ledger:
    """A queue, and what each organization should have been charged in it."""

    clock: Clock = field(default_factory=Clock)
    running: list[ServiceCharge] = field(default_factory=list)
    ended: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    lifted: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def __post_init__(self) -> None:
        self.queue = queue_with_mean(self.clock)
        line = self.queue.tier_queues["default"]
        # Busy throughout, so that no counter is forgotten; lifts are no charges.
        self.running += [self.queue.serve_at_once(SlotRequest(one, rates=RATES)) for one in "abc"]
        self.members = {one.tenant.tenant_id: one.tenant for one in self.running}
        lift = line._lift

        def counted(member: Any, *passed: Any) -> None:
            before = member.counter
            lift(member, *passed)
            self.lifted[member.tenant_id] += member.counter - before

        line._lift = counted  # type: ignore[method-assign]

    def request(self, number: int) -> SlotRequest:
        return SlotRequest(
            "abc"[number % 3],
            weight=1 + number % 2,
            sequences=1 + number % 4,
            input_tokens=1 + number,
            output_tokens_max=100 * number,
            rates=RATES,
        )

    def do(self, step: str, number: int, amount: float) -> None:
        some = self.running[3:]
        if step == "begin":
            self.running.append(self.queue.serve_at_once(self.request(number)))
        elif step == "wait":
            waiter = Waiter(self.request(number), (), future())
            waiter.queues.append(self.queue)
            self.queue._look()
            self.queue.tier_queues["default"].join(waiter)
        elif step == "turn":
            if (head := self.queue.first()) is not None:
                self.running.append(self.queue.serve(head))
        elif step == "make" and some:
            tokens = TokenUsage(input=number, output=int(100 * amount))
            some[number % len(some)].progress = lambda: tokens
        elif step == "pass":
            self.clock.now += amount
        elif step == "share":
            self.queue.set_weight_shares({"a": amount / 3, "b": 0.5})
        elif some:
            self.end(some[number % len(some)], number, is_refund=step == "refund")

    def end(self, service: ServiceCharge, number: int, *, is_refund: bool) -> None:
        tokens = None if number % 5 == 0 else TokenUsage(input=number, output=7 * number)
        if is_refund:
            self.queue.refund(service)
        else:
            self.queue.settle(service, tokens)
        self.queue.end(service)
        self.running.remove(service)
        self.ended[service.tenant.tenant_id] += service.charged / service.effective_weight

    def check(self) -> None:
        for organization_id, member in self.members.items():
            running = sum(
                one.charged / one.effective_weight
                for one in self.running
                if one.tenant.tenant_id == organization_id
            )
            expected = self.lifted[organization_id] + self.ended[organization_id] + running
            assert member.counter == pytest.approx(expected)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_the_sum_of_charges_is_what_ended_requests_cost_and_running_ones_were_charged(
    steps: list[tuple[str, int, float]],
) -> None:
    ledger = Ledger()
    for step in steps:
        ledger.do(*step)
        ledger.check()


# ---- Bounds of service ----

STEP_SECONDS = 0.5
TOKENS_A_STEP = 25
"""That each slot makes."""
INPUT_MAX, OUTPUT_MAX = 500, 2_000
COST_MAX = INPUT_MAX + OUTPUT_MAX * RATES.output
SECOND_COST = CHARGE_SECONDS / STEP_SECONDS * TOKENS_A_STEP * RATES.output


@dataclass
class Engine:
    """So many slots, each of which makes tokens at one pace, before one line."""

    slots: int
    random: Random
    clock: Clock = field(default_factory=Clock)
    left: dict[ServiceCharge, int] = field(default_factory=dict)
    made: Counter[ServiceCharge] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    slot_seconds: Counter[str] = field(default_factory=Counter)
    given: list[str] = field(default_factory=list)
    lag_max: float = 0.0

    def __post_init__(self) -> None:
        self.queue = FairQueue(self.clock, NO_BOUNDS)
        self.queue.slot_second.record_pace(TOKENS_A_STEP / STEP_SECONDS)
        self.line = self.queue.tier_queues["default"]

    def send(self, organization: str, weight: int = 1, input_tokens: int = 1) -> None:
        """Have a request wait."""
        request = SlotRequest(
            organization,
            weight,
            input_tokens=input_tokens,
            output_tokens_max=OUTPUT_MAX,
            rates=RATES,
        )
        waiter = Waiter(request, (), future())
        waiter.queues.append(self.queue)
        self.queue._look()
        self.line.join(waiter)

    def step(self, longest: dict[str, int]) -> None:
        """Give the free slots, and make what is made in half a second."""
        while len(self.left) < self.slots and (head := self.queue.first()):
            self.lag_max = max(self.lag_max, sum(map(self.lag, self.left)))
            service = self.queue.serve(head)
            organization = service.request.organization_id
            self.given.append(organization)
            self.left[service] = self.random.randint(1, longest.get(organization, OUTPUT_MAX))
            self.received[organization] += service.request.input_tokens
            service.progress = self.progress_of(service)
        self.clock.now += STEP_SECONDS
        for service in list(self.left):
            tokens = min(TOKENS_A_STEP, self.left[service])
            self.left[service] -= tokens
            self.made[service] += tokens
            organization = service.request.organization_id
            self.received[organization] += tokens * RATES.output
            self.slot_seconds[organization] += STEP_SECONDS
            if not self.left[service]:
                del self.left[service]
                self.line.settle(service, self.tokens(service))
                self.queue.end(service)

    def tokens(self, service: ServiceCharge) -> TokenUsage:
        return TokenUsage(input=service.request.input_tokens, output=self.made[service])

    def progress_of(self, service: ServiceCharge) -> Any:
        return lambda: self.tokens(service)

    def lag(self, service: ServiceCharge) -> float:
        """Return what a request received and was not charged."""
        return max(0.0, RATES.cost(self.tokens(service)) - service.charged)


ORGANIZATIONS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from((1, 20, 200, OUTPUT_MAX))), min_size=2, max_size=4
)


@settings(max_examples=60, deadline=None)
@given(ORGANIZATIONS, st.integers(1, 12), st.integers(0, 2**32))
def test_service_by_weight_differs_by_what_the_slots_hold_and_make_in_a_second(
    organizations: list[tuple[int, int]], slots: int, seed: int
) -> None:
    engine = Engine(slots, Random(seed))
    names = {f"org_{number}": each for number, each in enumerate(organizations)}
    longest = {name: output for name, (_, output) in names.items()}
    least = min(weight for weight, _ in organizations)
    for step in range(120):
        for name, (weight, _) in names.items():
            member = engine.line._busy.get(name)
            while member is None or len(member.waiters) < 2 * slots:
                engine.send(name, weight, engine.random.randint(1, INPUT_MAX))
                member = engine.line._busy[name]
        if step == 60:  # Those who made little make much, and the other way round.
            longest = dict(zip(longest, reversed(longest.values()), strict=True))
        engine.step(longest)
        by_weight = [engine.received[name] / weight for name, (weight, _) in names.items()]
        assert max(by_weight) - min(by_weight) <= slots * (COST_MAX + SECOND_COST) / least
    assert engine.lag_max <= slots * SECOND_COST


@pytest.mark.parametrize("seed", range(5))
def test_short_answers_followed_by_the_longest_take_no_slots_from_others(seed: int) -> None:
    engine = Engine(8, Random(seed))
    for _ in range(200):
        engine.send("attacker")
    for _ in range(20):
        engine.step({"attacker": 1})
    engine.slot_seconds.clear()
    for _ in range(120):
        engine.send("attacker")
        for _ in range(8):
            engine.send("victim")
        engine.step({"attacker": 10**6, "victim": TOKENS_A_STEP})
    part = engine.slot_seconds["victim"] / engine.slot_seconds.total()
    assert part >= 3 / 8, "0.002 where nothing is charged ahead"


def test_a_newcomer_is_lifted_to_those_whose_turn_may_come() -> None:
    line = TierQueue(NO_BOUNDS)
    for name in ("passed", "steady"):
        line.join(Waiter(SlotRequest(name), (), future()))
    for _ in range(100):
        line.join(Waiter(SlotRequest("steady", input_tokens=100), (), future()))
        head = line.first({"passed"})
        assert head is not None
        line.end(line.serve(head))
    for name in ("newcomer", "another"):
        line.join(Waiter(SlotRequest(name), (), future()), {"passed"})
    counters = {member.tenant_id: member.counter for member in line.busy()}
    assert counters["newcomer"] == counters["another"] == counters["steady"] > 9_000
    assert counters["passed"] == 0.0, "its turn is yet to come"


async def test_who_waits_for_a_permit_is_nobody_to_be_lifted_to() -> None:
    pool = Pool("dep", clock=Clock(), may_exceed=lambda record: False)
    pool.set_replicas({"rep_1": replica("http://r1", 1, slots=2)})
    places = [(await pool.acquire(SlotRequest(one, input_tokens=100), ()))[1] for one in "ab"]
    tickets = [
        SlotRequest("wide", sequences=2),
        *[SlotRequest(one, input_tokens=100) for one in "ab" * 50],
    ]
    tasks = [asyncio.create_task(pool.acquire(request, ())) for request in tickets]
    await settle()
    for _ in range(40):
        place = places.pop(0)
        pool.queue.settle(place.service, TokenUsage(input=100))
        pool.release(place)
        await settle()
        done = [task for task in tasks if task.done()]
        places += [task.result()[1] for task in done]
        tasks = [task for task in tasks if task not in done]
    tasks.append(asyncio.create_task(pool.acquire(SlotRequest("newcomer"), ())))
    await settle()
    counters = {one.tenant_id: one.counter for one in pool.queue.tier_queues["default"].busy()}
    assert counters["newcomer"] == min(counters["a"], counters["b"]) > 1_000
    assert counters["wide"] < 1_000, "it has its turn as soon as it may"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_after_an_hour_without_a_slot_a_newcomer_gains_one_request_at_most() -> None:
    clock = Clock()
    queue = FairQueue(clock, NO_BOUNDS)
    queue.serve_at_once(SlotRequest("starved", tier="batch", input_tokens=9_000))
    for tier in TIERS:
        queue.serve_at_once(SlotRequest("starved", tier=tier, input_tokens=10**6))
    for _ in range(50):
        queue.join(SlotRequest("starved", tier="batch", input_tokens=100, seconds_max=1e9), ())
    clock.now += 3_600.0
    for _ in range(50):
        queue.join(SlotRequest("newcomer", tier="batch", input_tokens=100, seconds_max=1e9), ())
    turns = Counter[str]()
    for _ in range(60):
        head = queue.first()
        assert head is not None
        queue.serve(head)
        turns[head.request.organization_id] += 1
        assert abs(turns["newcomer"] - turns["starved"]) <= 1


def test_joining_and_leaving_gains_nothing() -> None:
    line, turns = TierQueue(NO_BOUNDS), Counter[str]()
    for _ in range(300):
        line.join(Waiter(SlotRequest("steady", input_tokens=100), (), future()))
    for _ in range(200):
        churn = [Waiter(SlotRequest("churner", input_tokens=100), (), future()) for _ in range(5)]
        for waiter in churn:
            line.join(waiter)
        for waiter in churn[1:]:
            line.remove(waiter)
        head = line.first()
        assert head is not None
        line.end(line.serve(head))
        turns[head.request.organization_id] += 1
        line.remove(churn[0])
    assert turns["churner"] <= turns["steady"] + 1


def test_fifty_new_organizations_pass_one_that_waits_once_each() -> None:
    line = TierQueue(NO_BOUNDS)
    for _ in range(100):
        line.join(Waiter(SlotRequest("steady", input_tokens=100), (), future()))
    for _ in range(20):
        head = line.first()
        assert head is not None
        line.end(line.serve(head))
    for number in range(50):
        for _ in range(10):
            line.join(Waiter(SlotRequest(f"new_{number}", input_tokens=100), (), future()))
    before = list[str]()
    while (head := line.first()) is not None and head.request.organization_id != "steady":
        line.end(line.serve(head))
        before.append(head.request.organization_id)
    assert max(Counter(before).values(), default=0) <= 1


def test_three_tiers_at_once_take_from_each_neighbour_half_of_its_tier() -> None:
    clock, turns = Clock(), Counter[tuple[str, str]]()
    queue = FairQueue(clock, NO_BOUNDS)
    tiers = ("priority", "default", "flex")
    for tier in tiers:
        for name in ("everywhere", f"only_{tier}"):
            for _ in range(100):
                waiter = Waiter(SlotRequest(name, tier=tier, input_tokens=100), (), future())
                waiter.queues.append(queue)
                queue.tier_queues[tier].join(waiter)
    for _ in range(90):
        head = queue.first()
        assert head is not None
        queue.end(queue.serve(head))
        turns[head.request.tier, head.request.organization_id] += 1
        for tier in tiers:
            assert abs(turns[tier, "everywhere"] - turns[tier, f"only_{tier}"]) <= 1


async def test_slots_that_are_free_again_cost_no_more() -> None:
    clock = Clock()
    pool = Pool("dep", clock=clock)
    pool.set_replicas({"rep_1": replica("http://r1", 1, slots=1)})
    pool.queue.slot_second.record(SLOT_SECOND_COST, 1.0, clock.now)
    async with pool.slot(SlotRequest("org", rates=RATES)) as slot:
        line = pool.queue.tier_queues[slot.request.tier]
        clock.now += 2.0
        line.charge_running(clock.now)
        assert slot.service.charged == (charged := 2 * SLOT_SECOND_COST)
        slot.vacate()
        clock.now += 100.0
        line.charge_running(clock.now)
        assert slot.service.charged == charged
        slot.usage_known(TokenUsage(input=1))
    assert slot.service.charged == 2 * SLOT_SECOND_COST
