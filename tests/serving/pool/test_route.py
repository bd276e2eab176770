"""The choice of replica: room first, then what it knows within bounds of load, then a hash."""

from collections import Counter
from math import ceil
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.pool.prefixes import Blocks, blocks_of
from serving.pool.replica import Replica
from serving.pool.route import LOAD_MAX, choose
from tests.support import catalog

NOW = 100.0
PROMPTS = [blocks_of((Random(seed).randbytes(8 * 512),), "salt") for seed in range(6)]
PROMPT = st.tuples(st.sampled_from(PROMPTS), st.integers(0, 8)).map(lambda of: of[0][: of[1]])


def replica(number: int, slots: int = 8, share: int | None = None, in_flight: int = 0) -> Replica:
    record = catalog.replica(f"http://r{number}", number, slots=slots)
    return Replica(record, slots if share is None else share, in_flight)


@st.composite
def pools(draw: st.DrawFn) -> list[Replica]:
    """Replicas in any state, with any load, which saw any prompts."""
    made = []
    for number in range(draw(st.integers(1, 6))):
        slots = draw(st.integers(1, 8))
        one = replica(number, slots, draw(st.integers(0, slots)), draw(st.integers(0, 9)))
        state = draw(st.sampled_from(("ready", "ready", "ready", "draining")))
        one.record = msgspec.structs.replace(one.record, state=state)
        one.ejected_until = draw(st.sampled_from((0.0, 0.0, NOW - 1, NOW + 1)))
        for blocks in draw(st.lists(PROMPT, max_size=4)):
            one.seen.note(blocks)
        made.append(one)
    return made


@settings(max_examples=400)
@given(pools(), PROMPT, st.integers(1, 4), st.sets(st.sampled_from(["rep_0", "rep_1"])))
def test_a_replica_with_room_is_found_if_there_is_one_and_no_other(
    replicas: list[Replica], blocks: Blocks, width: int, avoid: set[str]
) -> None:
    ready = [one for one in replicas if one.is_ready]
    usable = [one for one in ready if one.is_usable(NOW)] or ready
    free = [one for one in usable if one.has_room(width)]
    choice = choose(replicas, NOW, avoid, width=width, blocks=blocks)
    assert (choice is None) == (not free)
    if choice is not None:
        assert choice.replica in free
        others = [one for one in free if one.record.replica_id not in avoid]
        assert choice.replica in (others or free)


@settings(max_examples=400)
@given(pools(), PROMPT, st.integers(1, 4))
def test_no_replica_is_taken_for_what_it_knows_beyond_its_part_of_the_load(
    replicas: list[Replica], blocks: Blocks, width: int
) -> None:
    choice = choose(replicas, NOW, width=width, blocks=blocks)
    if choice is None or choice.why in ("load", "spill"):
        return
    usable = [one for one in replicas if one.is_usable(NOW)] or [
        one for one in replicas if one.is_ready
    ]
    mean = (sum(one.in_flight for one in usable) + width) / sum(one.share for one in usable)
    taken = choice.replica
    assert not taken.in_flight or taken.in_flight + width <= ceil(LOAD_MAX * mean * taken.share)
    assert taken.seen.count(blocks) == max(one.seen.count(blocks) for one in usable)
    assert (choice.why == "affinity") == (taken.seen.count(blocks) > 0)


@given(st.sampled_from(PROMPTS), st.integers(1, 8))
def test_idle_replicas_are_chosen_alike_without_history(blocks: Blocks, turn: int) -> None:
    one, another = [[replica(number) for number in order] for order in (range(4), (2, 0, 3, 1))]
    first = choose(one, NOW, blocks=blocks[:turn])
    later = choose(another, NOW, blocks=blocks)
    assert first is not None and later is not None
    assert first.replica.record == later.replica.record
    assert first.why == later.why == "hash"


def test_who_saw_most_of_a_prompt_is_taken() -> None:
    replicas = [replica(number) for number in range(4)]
    replicas[1].seen.note(PROMPTS[0][:3])
    replicas[2].seen.note(PROMPTS[0][:6])
    choice = choose(replicas, NOW, blocks=PROMPTS[0])
    assert choice == (replicas[2], "affinity")


def test_one_with_too_much_to_do_is_spared_for_the_next_best() -> None:
    replicas = [replica(number, in_flight=2) for number in range(4)]
    replicas[1].seen.note(PROMPTS[0][:3])
    replicas[2].seen.note(PROMPTS[0][:6])
    replicas[2].in_flight = 4  # one more is 11 together: 1.25 times the mean is 3.4, so 4 at most
    assert choose(replicas, NOW, blocks=PROMPTS[0]) == (replicas[1], "spill")
    replicas[3].in_flight += 3
    assert choose(replicas, NOW, blocks=PROMPTS[0]) == (replicas[2], "affinity")


def test_where_the_only_one_with_room_is_at_its_bound_it_is_taken_all_the_same() -> None:
    replicas = [replica(number, slots=4, in_flight=1) for number in range(3)]
    replicas.append(replica(3, slots=16, in_flight=12))
    assert choose(replicas, NOW, width=4, blocks=PROMPTS[0]) == (replicas[3], "spill")


def test_prompts_are_spread_by_slots() -> None:
    replicas = [replica(number, slots=slots) for number, slots in enumerate((8, 8, 16))]
    taken: Counter[str] = Counter()
    for number in range(2_000):
        choice = choose(replicas, NOW, blocks=(number * 0x9E3779B97F4A7C15 % 2**64,))
        assert choice is not None
        taken[choice.replica.record.replica_id] += 1
    assert 420 < taken["rep_0"] < 580
    assert 420 < taken["rep_1"] < 580


def test_what_went_to_a_replica_that_left_is_all_that_moves() -> None:
    replicas = [replica(number) for number in range(4)]
    for number in range(500):
        blocks = (number * 0x9E3779B97F4A7C15 % 2**64,)
        before, after = (choose(of, NOW, blocks=blocks) for of in (replicas, replicas[:3]))
        assert before is not None and after is not None
        if before.replica is not replicas[3]:
            assert after.replica is before.replica


def test_a_short_prompt_goes_to_the_least_busy() -> None:
    replicas = [replica(0, slots=16, in_flight=3), replica(1, slots=4, in_flight=1)]
    assert choose(replicas, NOW) == (replicas[0], "load")
