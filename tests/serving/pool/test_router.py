"""The choice of replica: room first, then bounds of load, then where a prompt is soonest read."""

from collections import Counter
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.pool.prefix_history import Blocks, PromptPrefix, blocks_of
from serving.pool.replicas import Replica
from serving.pool.router import choose, slots_max
from tests.fixtures import catalog

NOW = 100.0
PROMPTS = [blocks_of((Random(seed).randbytes(8 * 512),), "salt") for seed in range(6)]
PROMPT = st.tuples(st.sampled_from(PROMPTS), st.integers(0, 8)).map(lambda of: of[0][: of[1]])


def prefix(blocks: Blocks) -> PromptPrefix:
    return PromptPrefix("org_a", blocks)


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
            one.prefix_history.record(prefix(blocks))
        made.append(one)
    return made


@settings(max_examples=400)
@given(pools(), PROMPT, st.integers(1, 4), st.sets(st.sampled_from(["rep_0", "rep_1"])))
def test_a_replica_with_room_is_found_if_there_is_one_and_no_other(
    replicas: list[Replica], blocks: Blocks, sequences: int, excluded: set[str]
) -> None:
    ready = [one for one in replicas if one.is_ready]
    usable = [one for one in ready if one.is_usable(NOW)] or ready
    others = [one for one in usable if one.share and one.record.replica_id not in excluded]
    free = [one for one in others or usable if one.has_room]
    free = [one for one in free if one.free >= sequences] or free
    choice = choose(replicas, NOW, excluded, sequences=sequences, prefix=prefix(blocks))
    assert (choice is None) == (not free)
    if choice is not None:
        assert choice.replica in free


@settings(max_examples=400)
@given(pools(), PROMPT, st.integers(1, 4))
def test_no_replica_is_taken_for_what_it_knows_beyond_its_part_of_the_load(
    replicas: list[Replica], blocks: Blocks, sequences: int
) -> None:
    choice = choose(replicas, NOW, sequences=sequences, prefix=prefix(blocks))
    if choice is None or choice.why != "affinity":
        return
    usable = [one for one in replicas if one.is_usable(NOW)] or [
        one for one in replicas if one.is_ready
    ]
    mean = (sum(one.in_flight for one in usable) + sequences) / sum(one.share for one in usable)
    taken = choice.replica
    allowed = [one for one in usable if one.has_room]
    allowed = [one for one in allowed if one.free >= sequences] or allowed
    allowed = [
        one for one in allowed if one.in_flight + sequences <= slots_max(one, mean)
    ] or allowed
    assert taken in allowed
    assert (
        taken.prefix_history.count(prefix(blocks))
        == max(one.prefix_history.count(prefix(blocks)) for one in usable)
        > 0
    )


def test_who_saw_most_of_a_prompt_is_taken() -> None:
    replicas = [replica(number) for number in range(4)]
    replicas[1].prefix_history.record(prefix(PROMPTS[0][:3]))
    replicas[2].prefix_history.record(prefix(PROMPTS[0][:6]))
    choice = choose(replicas, NOW, prefix=prefix(PROMPTS[0]))
    assert choice == (replicas[2], "affinity", 2)


def test_one_with_too_much_to_do_is_spared_for_the_next_best() -> None:
    replicas = [replica(number, in_flight=2) for number in range(4)]
    replicas[1].prefix_history.record(prefix(PROMPTS[0][:3]))
    replicas[2].prefix_history.record(prefix(PROMPTS[0][:6]))
    replicas[2].in_flight = 7  # one more is 14 together: 1.25 times the mean, and 2 more, is 6.4
    assert choose(replicas, NOW, prefix=prefix(PROMPTS[0])) == (replicas[1], "spill", 5)
    replicas[3].in_flight += 3
    assert choose(replicas, NOW, prefix=prefix(PROMPTS[0])) == (replicas[2], "affinity", 2)


def test_what_it_has_to_read_before_counts_for_half_of_what_it_would_read_anew() -> None:
    replicas = [replica(number) for number in range(2)]
    replicas[1].prefix_history.record(prefix(PROMPTS[0][:3]))
    replicas[1].prefill_backlog = 5
    assert choose(replicas, NOW, prefix=prefix(PROMPTS[0])) == (replicas[1], "affinity", 5)
    replicas[1].prefill_backlog = 7
    assert choose(replicas, NOW, prefix=prefix(PROMPTS[0])) == (replicas[0], "spill", 8)


def test_a_new_prompt_goes_where_least_is_to_be_read() -> None:
    replicas = [replica(0, in_flight=0), replica(1, in_flight=1), replica(2, in_flight=2)]
    replicas[0].prefill_backlog = replicas[1].prefill_backlog = 1
    assert choose(replicas, NOW, prefix=prefix(PROMPTS[0])) == (replicas[2], "load", 8)
    replicas[2].prefill_backlog = 1
    assert choose(replicas, NOW, prefix=prefix(PROMPTS[0])) == (replicas[0], "load", 8)


def test_where_the_only_one_with_room_is_at_its_bound_it_is_taken_all_the_same() -> None:
    replicas = [replica(number, slots=4, in_flight=1) for number in range(3)]
    replicas.append(replica(3, slots=16, in_flight=12))
    assert choose(replicas, NOW, sequences=4, prefix=prefix(PROMPTS[0])) == (replicas[3], "load", 8)


def test_idle_replicas_are_filled_by_their_slots() -> None:
    replicas = [replica(number, slots=slots) for number, slots in enumerate((8, 8, 16))]
    taken: Counter[str] = Counter()
    for number in range(2_000):
        choice = choose(replicas, NOW, prefix=prefix((number * 0x9E3779B97F4A7C15 % 2**64,)))
        assert choice is not None
        taken[choice.replica.record.replica_id] += 1
    assert 420 < taken["rep_0"] < 580
    assert 420 < taken["rep_1"] < 580


@settings(max_examples=300)
@given(pools(), PROMPT, st.lists(st.floats(0, 9), min_size=6, max_size=6))
def test_a_full_engine_is_spared_only_where_all_else_is_equal(
    replicas: list[Replica], blocks: Blocks, strains: list[float]
) -> None:
    before = choose(replicas, NOW, prefix=prefix(blocks))
    for one, engine_load in zip(replicas, strains, strict=False):
        one.engine_load = engine_load
    after = choose(replicas, NOW, prefix=prefix(blocks))
    assert (before is None) == (after is None)
    if before is not None and after is not None and before.replica is not after.replica:
        assert after.replica.engine_load <= before.replica.engine_load
        taken, spared = after.replica, before.replica
        assert taken.in_flight / taken.share == spared.in_flight / spared.share


def test_of_two_that_are_as_busy_the_less_full_engine_is_taken() -> None:
    replicas = [replica(0, in_flight=2), replica(1, in_flight=2), replica(2, in_flight=3)]
    replicas[0].engine_load = 0.7
    for blocks in ((), PROMPTS[0], PROMPTS[1]):
        assert choose(replicas, NOW, prefix=prefix(blocks)) == (replicas[1], "load", len(blocks))
    replicas[0].prefix_history.record(prefix(PROMPTS[0]))
    assert choose(replicas, NOW, prefix=prefix(PROMPTS[0])) == (replicas[0], "affinity", 0)


def test_a_short_prompt_goes_to_the_least_busy() -> None:
    replicas = [replica(0, slots=16, in_flight=3), replica(1, slots=4, in_flight=1)]
    assert choose(replicas, NOW) == (replicas[0], "load", 0)
