"""The rule: never more than rate x time + burst, whatever is asked and settled, in any order."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving.contract.limits import MINUTE
from serving.limits.gcra import SLACK, admits, lateness, settle, step_of, take

limits = st.integers(1, 10**7)
gaps = st.floats(0.0, 2 * MINUTE)


@given(limits, st.lists(st.tuples(gaps, st.floats(0.0, 1.0)), max_size=60))
def test_no_window_ever_admits_more_than_rate_times_time_and_a_burst(limit, wishes):
    now = full_at = 0.0
    admitted: list[tuple[float, float]] = []
    for gap, part in wishes:
        now += gap
        step = step_of(max(round(part * limit), 1), limit)
        if admits(full_at, now, step):
            full_at = take(full_at, now, step)
            admitted.append((now, step))
    for first in range(len(admitted)):
        taken = 0.0
        for at, step in admitted[first:]:
            taken += step
            assert taken <= at - admitted[first][0] + MINUTE + 2 * SLACK


@given(limits, gaps, st.integers(1, 10**8))
def test_who_waits_as_long_as_told_is_admitted_and_no_earlier(limit, ahead, amount):
    now, step = 1e13, step_of(amount, limit)
    full_at = now + ahead
    wait = lateness(full_at, now, step)
    if wait > SLACK:
        assert not admits(full_at, now + wait - 2 * SLACK, step)
    assert admits(full_at, now + max(wait, 0.0), step)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 300))
@example(7)
@example(2_830)
@example(20_000)
def test_a_minutes_worth_fits_at_once_and_one_more_does_not(limit):
    now = full_at = 1e13
    for _ in range(limit):
        assert admits(full_at, now, step_of(1, limit))
        full_at = take(full_at, now, step_of(1, limit))
    assert not admits(full_at, now, step_of(1, limit))
    assert admits(full_at, now + MINUTE / limit, step_of(1, limit))


Request = tuple[float, int, int, int]
"""Seconds until it comes, what it asks for, what it takes, and after how many others it ends."""
requests = st.lists(
    st.tuples(
        st.floats(0.0, 20.0), st.integers(1, 60), st.integers(0, 60), st.integers(0, 5)
    ),
    max_size=80,
)  # fmt: skip


@given(requests)
def test_what_is_settled_is_never_more_than_rate_times_time_and_a_burst(asked: list[Request]):
    # 60 a minute: a token is a second. Requests take no more than they asked for here.
    now = full_at = 0.0
    settled, running = 0, []
    for number, (gap, wanted, taken, others) in enumerate(asked):
        now += gap * 1e6
        for end in [end for end in running if end[0] <= number]:
            running.remove(end)
            full_at = settle(full_at, now, step_of(end[2] - end[1], 60))
        if admits(full_at, now, step_of(wanted, 60)):
            full_at = take(full_at, now, step_of(wanted, 60))
            running.append((number + others, wanted, min(taken, wanted)))
            settled += min(taken, wanted)
        assert settled <= now / 1e6 + 60 + 2e-3


@given(requests)
def test_a_debt_is_waited_for_so_that_in_the_long_run_no_more_is_taken(asked: list[Request]):
    now = full_at = 0.0
    total = largest = 0
    for gap, wanted, taken, _ in asked:
        now += gap * 1e6
        if admits(full_at, now, step_of(wanted, 60)):
            full_at = settle(
                take(full_at, now, step_of(wanted, 60)), now, step_of(3 * taken - wanted, 60)
            )
            total, largest = total + 3 * taken, max(largest, 3 * taken)
        assert total <= now / 1e6 + 60 + largest + 2e-3


def test_more_than_a_minutes_worth_waits_for_all_of_it_and_leaves_a_debt():
    step = step_of(90, 60)
    assert not admits(1e6 + 2 * SLACK, 1e6, step)
    full_at = take(1e6, 1e6, step)
    assert lateness(full_at, 1e6, step_of(1, 60)) == 31e6


def test_parts_of_a_limit_are_the_limit_together():
    admitted = 0
    for _ in range(3):
        now = full_at = 0.0
        while now < 10 * MINUTE:
            if admits(full_at, now, step_of(1, 60, share=3)):
                full_at = take(full_at, now, step_of(1, 60, share=3))
                admitted += 1
            else:
                now += lateness(full_at, now, step_of(1, 60, share=3))
    assert abs(admitted - 11 * 60) <= 3
