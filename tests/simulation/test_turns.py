"""Whose turn it is: often fine-grained, often one caller from end to end inside another's gap."""

import random
from itertools import groupby

from tests.simulation.turns import FALLS_MAX, Turns

POINTS = 20


def schedule(seed: int) -> str:
    """Return the order in which three callers of twenty points each go."""
    left = dict.fromkeys("abc", POINTS)
    turns = Turns("abc", random.Random(seed))
    order = ""
    while ready := [caller for caller, points in left.items() if points]:
        chosen = turns.next(ready)
        left[chosen] -= 1
        order += chosen
    return order


def runs(order: str) -> list[int]:
    """Return how many turns in a row a caller had, run by run."""
    return [len([*same]) for _, same in groupby(order)]


def test_a_schedule_follows_from_its_seed():
    assert [schedule(seed) for seed in range(20)] == [schedule(seed) for seed in range(20)]


def test_everybody_comes_to_the_end():
    assert all(sorted(schedule(seed)) == sorted("abc" * POINTS) for seed in range(100))


def test_many_schedules_run_a_whole_call_in_the_midst_of_another():
    inside = 0
    for seed in range(200):
        order = schedule(seed)
        inside += any(
            order[order.index(outer) : order.rindex(outer)].count(inner) == POINTS
            for outer in "abc"
            for inner in "abc"
            if inner != outer and len(runs(order)) <= 3 + 2 * FALLS_MAX
        )
    assert inside > 50


def test_many_schedules_mix_finely():
    assert sum(max(runs(schedule(seed))) < POINTS for seed in range(200)) > 60
