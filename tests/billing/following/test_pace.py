"""A follower that works much rests long, and never longer than ten seconds."""

import pytest

from billing.following.pace import Pace

pytestmark = pytest.mark.unit


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("worked", "rested"), [(0.0, 0.0), (0.5, 4.5), (3.0, 10.0)])
def test_it_rests_nine_times_as_long_as_it_worked(worked, rested):
    clock, done = Clock(), []

    def work():
        done.append(clock.now)
        clock.now += worked

    pace = Pace(clock)
    assert pace.run(work)
    if rested:
        clock.now += rested - 0.1
        assert not pace.run(work)
        clock.now += 0.1
    assert pace.run(work)
    assert len(done) == 2


def test_work_that_fails_is_tried_again_at_once():
    pace = Pace(Clock())
    with pytest.raises(ZeroDivisionError):
        pace.run(lambda: 1 // 0)
    assert pace.run(lambda: None)
