"""Shares of slots: never more in force than there are, and back from the dead in five seconds."""

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.codec import decode, encode
from serving.contract.slot_shares import (
    DemandReport,
    DeploymentDemand,
    OrganizationDemand,
    ReplicaUsage,
    SlotSharesReply,
)
from serving.fleet.slot_shares import GATEWAY_SECONDS, SlotAllocator

SLOTS = {"dep": {"r1": 8, "r2": 4}}
TOTAL = 12
WIDTH = 8


@dataclass
class Gateway:
    """A gateway as far as slots go: it starts what waits where its share has room."""

    name: str
    fleet: SlotAllocator
    slots: dict[str, dict[str, int]] = field(default_factory=lambda: SLOTS)
    number: int = 0
    shares: dict[str, int] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    wide: int = 0
    """Requests of eight choices that wait."""
    may_exceed: tuple[str, ...] = ()

    def report(self, now: float, *, is_lost: bool = False) -> None:
        """Report and go by the answer, or never hear of it."""
        self.number += 1
        reply = self.fleet.report(self.told(), self.slots, now)
        if not is_lost:
            reply = decode(encode(reply), SlotSharesReply)
            self.shares, self.may_exceed = reply.shares, reply.may_exceed

    def told(self) -> DemandReport:
        held = {}
        for one in self.slots["dep"]:
            share, running = self.shares.get(one, 0), self.running.get(one, 0)
            held[one] = ReplicaUsage(share, running, one in self.may_exceed or running > share)
        runs = sum(self.running.values())
        tiers = {
            name: OrganizationDemand(1, runs if name == self.name else 0, count)
            for name, count in self.waiting.items()
        }
        demand = DeploymentDemand(held, {"default": tiers}, self.wide > 0)
        report = DemandReport(self.name, self.number, {"dep": demand})
        return decode(encode(report), DemandReport)

    def start(self) -> None:
        for replica, share in self.shares.items():
            while sum(self.waiting.values()) and self.running.get(replica, 0) < share:
                organization = next(name for name, count in self.waiting.items() if count)
                self.waiting[organization] -= 1
                self.running[replica] = self.running.get(replica, 0) + 1

    def start_wide(self) -> None:
        for replica, share in self.shares.items():
            if self.wide and self.running.get(replica, 0) < share and replica in self.may_exceed:
                self.wide -= 1
                self.running[replica] = self.running.get(replica, 0) + WIDTH

    def end(self, count: int) -> None:
        """So many end, each where most run."""
        for _ in range(min(count, sum(self.running.values()))):
            busiest = max(self.running, key=lambda replica: (self.running[replica], replica))
            self.running[busiest] -= 1


def world(*names: str, grace: float = 0.0) -> tuple[SlotAllocator, list[Gateway]]:
    fleet = SlotAllocator(epoch=0, grace_until=grace)
    return fleet, [Gateway(name, fleet) for name in names]


def settle(gateways: list[Gateway], now: float, rounds: int = 3) -> float:
    """Let all report in turn, as they do while somebody waits."""
    for _ in range(rounds):
        for gateway in gateways:
            gateway.start()
            gateway.report(now)
        now += 0.2
    return now


DEEDS = st.lists(
    st.tuples(
        st.sampled_from(("report", "lost", "start", "wait", "end", "die", "time", "wide")),
        st.integers(0, 2),
        st.integers(0, 9),
    ),
    max_size=80,
)


@settings(max_examples=300, deadline=None)
@given(DEEDS, st.integers(0, 2**32))
def test_together_they_run_no_more_than_the_slots_and_what_one_wide_request_exceeds(
    deeds: list[tuple[str, int, int]], seed: int
) -> None:
    fleet, gateways = world("g1", "g2", "g3")
    now, names, lives = 100.0, Random(seed), 0
    heard = dict.fromkeys(range(3), now)
    for deed, place, count in deeds:
        gateway = gateways[place]
        if deed == "wait":
            gateway.waiting[names.choice("abc")] = count
        elif deed == "start":
            gateway.start_wide()
            gateway.start()
        elif deed == "wide":
            gateway.wide = count
        elif deed == "end":
            gateway.end(count)
        elif deed == "time":
            now += count / 10
        elif deed == "die":
            lives += 1
            gateways[place] = Gateway(f"life_{lives}", fleet)
        else:
            gateway.report(now, is_lost=deed == "lost")
            heard[place] = now
        for other, at in heard.items():
            if now - at >= GATEWAY_SECONDS - 1:
                gateways[other].report(now)  # whoever lives is heard of in time
                heard[other] = now
        for replica, slots in SLOTS["dep"].items():
            in_force = sum(
                max(one.shares.get(replica, 0), one.running.get(replica, 0)) for one in gateways
            )
            assert in_force <= slots + WIDTH - 1
            assert fleet.granted(replica) <= slots + WIDTH - 1
            if not any(
                one.running.get(replica, 0) > one.shares.get(replica, 0) for one in gateways
            ):
                assert in_force <= slots


def test_one_gateway_has_all_at_its_first_report() -> None:
    _, [gateway] = world("g1")
    gateway.report(0.0)
    assert gateway.shares == {"r1": 8, "r2": 4}


def test_who_begins_to_wait_has_its_part_within_a_second_though_others_hold_all() -> None:
    _, [first, second] = world("g1", "g2")
    first.waiting = {"a": 500}
    now = settle([first], 0.0)
    assert sum(first.running.values()) == TOTAL
    second.waiting = {"b": 500}
    began = now
    while sum(second.running.values()) < TOTAL // 2:
        now = settle([first, second], now, rounds=1)
        first.end(3)
        assert now - began <= 2.0
    second.end(0)
    assert abs(sum(first.shares.values()) - sum(second.shares.values())) <= 1


def test_idle_slots_are_taken_over_within_a_second() -> None:
    _, [first, second] = world("g1", "g2")
    now = settle([first], 0.0)
    second.waiting = {"b": 500}
    second.report(now)
    assert sum(second.shares.values()) == 0
    first.report(now + 0.5)  # its heartbeat
    first.report(now + 0.7)  # it says at once that it keeps to less
    second.report(now + 0.8)
    assert sum(second.shares.values()) == TOTAL - 1


def test_the_slots_of_the_dead_are_back_in_five_seconds() -> None:
    fleet, [first, second] = world("g1", "g2")
    first.waiting = second.waiting = {"a": 100}
    now = settle([first, second], 0.0)
    lost = sum(first.shares.values())
    assert lost > 0
    for _ in range(int(GATEWAY_SECONDS / 0.2) + 2):
        now = settle([second], now, rounds=1)
    assert sum(second.shares.values()) == TOTAL
    assert list(fleet.gateways) == ["g2"]


def test_who_leaves_gives_all_back_at_once() -> None:
    fleet, [first, second] = world("g1", "g2")
    now = settle([first, second], 0.0)
    fleet.report(DemandReport("g1", first.number + 1, {}, is_leaving=True), SLOTS, now)
    second.report(now)
    assert sum(second.shares.values()) == TOTAL


def test_a_fleet_that_starts_beside_gateways_at_work_takes_nothing_of_them_for_free() -> None:
    _, [first, second] = world("g1", "g2", grace=2.0)
    first.shares = {"r1": 8, "r2": 2}
    first.running = {"r1": 8, "r2": 2}
    first.waiting = second.waiting = {"a": 50}
    second.report(0.1)
    assert sum(second.shares.values()) == 0
    first.report(0.4)
    second.report(2.1)
    assert sum(second.shares.values()) <= 2


def test_a_report_that_comes_late_is_not_believed() -> None:
    fleet, [first, _] = world("g1", "g2")
    first.report(0.0)
    late = first.told()
    first.running = {"r1": 8}
    first.report(0.2)
    assert fleet.report(late, SLOTS, 0.3).shares == {}
    assert fleet.granted("r1") == 8


def test_a_new_life_is_believed_though_its_clock_was_set_back_and_the_old_one_no_more() -> None:
    fleet, _ = world()
    demands = {"dep": DeploymentDemand({"r1": ReplicaUsage(0, 0)})}

    def report(number: int, life: str) -> int:
        made = DemandReport("g1", number, demands, life=life)
        return fleet.report(made, SLOTS, 0.0).shares.get("r1", 0)

    assert report(100, "first") == 8
    assert report(40, "second") == 8
    assert report(101, "first") == 0, "it was under way while its gateway died"
    assert report(40, "second") == 0
    assert report(41, "second") == 8
    assert report(7, "") == 8, "one that says nothing of lives"
    assert report(7, "") == 0


def test_a_gateway_is_granted_only_replicas_that_it_knows_of() -> None:
    fleet, [first, second] = world("g1", "g2")
    first.slots = {"dep": {"r1": 8}}
    report = first.told()
    assert fleet.report(report, SLOTS, 0.0).shares == {"r1": 8}
    second.report(0.0)
    assert "r2" in second.shares


def test_whoever_shares_a_slot_by_turns_gets_its_turn() -> None:
    fleet, gateways = world("g1", "g2", "g3")
    slots = {"dep": {"r1": 1}}
    served: dict[str, int] = {}
    now = 0.0
    for _ in range(40):
        for gateway in gateways:
            gateway.slots = slots
            gateway.waiting = {"a": 5}
            gateway.start()
            if gateway.running.get("r1"):
                served[gateway.name] = served.get(gateway.name, 0) + 1
                gateway.end(1)
            gateway.report(now)
        assert fleet.granted("r1") <= 1
        now += 0.2
    assert len(served) == 3


def test_one_gateway_at_a_time_may_exceed_its_share_and_each_that_wants_to_has_its_turn() -> None:
    _, [first, second] = world("g1", "g2")
    first.report(0.0)
    assert set(first.may_exceed) == {"r1", "r2"}, "alone it need not ask"
    now, turns = 0.1, {"g1": 0, "g2": 0}
    second.report(now)
    assert second.may_exceed == ()
    for _ in range(100):
        first.wide = second.wide = 5
        for gateway in (first, second):
            gateway.report(now)
            if gateway.may_exceed:
                turns[gateway.name] += 1
        assert not set(first.may_exceed) & set(second.may_exceed)
        now += 0.2
    assert min(turns.values()) >= 30
    first.running, first.wide = {"r1": first.shares["r1"] + 7}, 0
    for _ in range(20):
        now += 0.2
        first.report(now)
        second.report(now)
        assert "r1" not in second.may_exceed, "until what exceeds has ended"
    first.running = {}
    for _ in range(3):
        first.report(now)
        second.report(now)
    assert set(second.may_exceed) == {"r1", "r2"}
