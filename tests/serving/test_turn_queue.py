"""Turns of tenants: whose items come next, and in which order."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from serving.turn_queue import TurnQueue

Item = tuple[str | None, int]
"""Whose it is, and its number among all."""

TENANTS = st.sampled_from(["a", "b", "c", "d", None])
STEPS = st.lists(
    st.tuples(st.lists(TENANTS, max_size=12), st.integers(0, 8), st.booleans()), max_size=20
)


@given(STEPS)
def test_items_keep_their_order_and_tenants_take_turns(
    steps: list[tuple[list[str | None], int, bool]],
) -> None:
    queue, number = TurnQueue[Item](lambda item: item[0]), 0
    waiting: dict[str | None, list[Item]] = {}
    for tenants, most, is_put_back in steps:
        new = [(tenant, number := number + 1) for tenant in tenants]
        queue.put(new)
        for item in new:
            waiting.setdefault(item[0], []).append(item)
        before = {tenant: list(items) for tenant, items in waiting.items()}
        taken = queue.take(most)
        own = waiting.pop(None, [])
        assert taken[: len(own)] == own, "the process's own go first, and all of them"
        others = taken[len(own) :]
        assert len(others) == min(most, sum(map(len, waiting.values())))
        for item in others:
            assert waiting[item[0]].pop(0) == item
        counts = Counter(item[0] for item in others)
        for tenant in [tenant for tenant, items in waiting.items() if items]:
            assert max(counts.values(), default=0) <= counts[tenant] + 1
        if is_put_back:
            queue.put_back(taken)
            waiting = before
        waiting = {tenant: items for tenant, items in waiting.items() if items}
        assert queue.count == sum(map(len, waiting.values())) == len(list(queue))
        assert set(queue) == {item for items in waiting.values() for item in items}


@given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.integers(10, 50))
def test_one_that_comes_is_in_the_next_batch_however_much_others_have(
    sizes: list[int], most: int
) -> None:
    queue = TurnQueue[Item](lambda item: item[0])
    for tenant, size in enumerate(sizes):
        queue.put((str(tenant), number) for number in range(size))
    while queue.count:
        queue.put([("newcomer", 0)])
        assert ("newcomer", 0) in queue.take(most)
