"""Shared time goes on by a clock that is never set, and one gateway that is wrong yields."""

from serving.contract.limits import EPOCH
from serving.limits.redis_script import TOLERANCE, TRUSTED_SECONDS, YIELD_SECONDS, SharedClock

HOUR = 3_600e6


class Host:
    """A host's two clocks."""

    def __init__(self) -> None:
        self.monotonic, self.wall = 1_000.0, EPOCH + 500.0

    def clock(self) -> SharedClock:
        return SharedClock(lambda: self.monotonic, lambda: self.wall)


def test_it_begins_by_the_hosts_clock_and_goes_on_by_what_it_heard() -> None:
    host = Host()
    clock = host.clock()
    assert (clock.now(), clock.expected()) == (500e6, None)
    assert clock.observe(800e6) == 300e6
    host.monotonic, host.wall = host.monotonic + 2, host.wall + 7_200
    assert clock.now() == clock.expected() == 802e6
    host.monotonic += TRUSTED_SECONDS
    assert clock.expected() is None


def test_a_step_of_an_hour_is_put_right_and_a_slow_call_is_none() -> None:
    clock = Host().clock()
    clock.observe(800e6)
    assert not clock.contradicts(800e6 + TOLERANCE)
    assert clock.contradicts(800e6 + HOUR)
    assert clock.contradicts(800e6 - HOUR)
    raw = 800e6 + HOUR
    assert raw + clock.correct(raw) == 800e6


def test_who_put_it_right_and_is_contradicted_believes_the_others() -> None:
    host = Host()
    clock = host.clock()
    clock.observe(800e6)
    host.monotonic += 1  # and a suspended machine's ten seconds, which it does not know of
    assert clock.contradicts(811e6)
    clock.correct(811e6)
    host.monotonic += 1
    assert not clock.contradicts(812e6)
    assert clock.observe(812e6) == 10e6
    host.monotonic += YIELD_SECONDS
    assert clock.contradicts(clock.now() + HOUR)
