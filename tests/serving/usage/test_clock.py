"""Time by control, wherever this host's clock is far off, and by no step of it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from serving.usage.clock import (
    APART_SECONDS,
    FUTURE_SECONDS,
    HEARD_MAX,
    SHORT_SECONDS,
    GatewayClock,
)

TRUE = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
LONG_POLL_SECONDS = 25.0
OFF_SECONDS = 2.0
"""How far a clock that control set may be off: what a `date` header says is two seconds wide."""


class Hands:
    """Both of a host's clocks and the true time, moved by hand."""

    def __init__(self, skew: float = 0.0) -> None:
        self.true = TRUE
        self.skew = skew
        self.control_skew = 0.0
        self.clock = GatewayClock(
            host=lambda: self.true + self.skew, monotonic=lambda: self.true - TRUE
        )

    @property
    def off(self) -> float:
        """How far the gateway's time is ahead of the true one."""
        return self.clock.time() - self.true

    def contact(self, *, seconds: float = 0.0) -> None:
        """Control answers a call that took so long; the date is that of its beginning."""
        at = datetime.fromtimestamp(self.true + self.control_skew - seconds, UTC)
        self.clock.observe(format_datetime(at, usegmt=True), seconds)

    def pass_(self, seconds: float) -> Iterator[float]:
        """Let time pass in tenths of a second, with a short call every other second."""
        for tenth in range(round(seconds * 10)):
            self.true += 0.1
            if tenth % 20 == 0:
                self.contact(seconds=0.05)
            yield self.clock.time()


def never_backwards(times: Iterator[float], before: float) -> bool:
    for at in times:
        if at <= before:
            return False
        before = at
    return True


@pytest.mark.parametrize("skew", [0.0, 1.5, 3_600.0, -3_600.0])
def test_an_hour_of_long_polls_neither_sets_the_clock_back_nor_moves_it(skew: float) -> None:
    hands = Hands(skew)
    hands.contact()
    before, host_off = hands.clock.time(), skew if abs(skew) < APART_SECONDS else 0.0
    for tenth in range(36_000):
        hands.true += 0.1
        if tenth % 5 == 0:
            hands.contact(seconds=0.04)
        if tenth % int(LONG_POLL_SECONDS * 10) == 0:
            hands.contact(seconds=LONG_POLL_SECONDS)
        assert hands.clock.time() > before
        assert hands.off == pytest.approx(host_off, abs=OFF_SECONDS)
        before = hands.clock.time()
    assert hands.clock.is_set_by_control == (abs(skew) > APART_SECONDS)


def test_of_a_short_call_half_its_duration_is_taken_off() -> None:
    quick, slow = Hands(3_600.0), Hands(3_600.0)
    for hands in (quick, slow):
        hands.contact(seconds=SHORT_SECONDS if hands is slow else 0.0)
    assert slow.off - quick.off == pytest.approx(-SHORT_SECONDS / 2)


def test_calls_that_are_not_short_tell_nothing() -> None:
    hands = Hands(3_600.0)
    hands.contact(seconds=SHORT_SECONDS + 0.1)
    assert hands.off == 3_600.0
    assert hands.clock.skew_seconds == 0.0


@pytest.mark.parametrize("skew", [3_600.0, -3_600.0, 86_400 * 400.0])
def test_a_clock_far_off_is_set_by_control(skew: float) -> None:
    hands = Hands(skew)
    received_at = hands.clock.now()
    hands.contact()
    assert abs(hands.off) <= 1
    assert abs(hands.clock.skew_seconds - skew) <= 1
    assert hands.clock.is_set_by_control
    assert hands.clock.is_in_future(received_at) == (skew > 0)
    hands.true += 100
    assert abs(hands.off) <= 1


@pytest.mark.parametrize("step", [3_600.0, -3_600.0])
def test_a_step_moves_nothing_whether_control_answers_or_not(step: float) -> None:
    hands = Hands()
    hands.contact()
    hands.skew = step
    assert hands.off == 0
    for skew in (step, 0.0):
        hands.skew = skew
        assert never_backwards(hands.pass_(20), hands.clock.time())
        assert abs(hands.off) <= OFF_SECONDS
        assert hands.clock.is_set_by_control == (skew != 0)
    assert hands.off == 0


@pytest.mark.parametrize("ahead", [-3.0, 4.0, 200.0, -200.0])
def test_what_is_a_little_off_is_led_back_and_never_backwards(ahead: float) -> None:
    hands = Hands()
    hands.contact()
    hands.skew = hands.control_skew = -ahead  # this gateway is ahead of both from now on
    assert never_backwards(hands.pass_(3 * abs(ahead) + 60), hands.clock.time())
    assert abs(hands.clock.time() - (hands.true - ahead)) <= OFF_SECONDS


def test_what_billing_would_refuse_is_set_back_at_once_and_one_odd_answer_is_not_heard() -> None:
    hands = Hands()
    for _ in range(HEARD_MAX):
        hands.contact()
    hands.control_skew = -2 * FUTURE_SECONDS
    hands.contact()
    assert hands.off == 0
    for _ in range(HEARD_MAX):
        hands.contact()
    assert abs(hands.off + 2 * FUTURE_SECONDS) <= OFF_SECONDS


def test_what_control_says_to_the_second_does_not_shake_a_clock_that_is_right() -> None:
    hands = Hands(skew=0.3)
    for _ in range(20):
        hands.true += 0.1
        hands.contact()
        assert hands.off == pytest.approx(0.3)
        assert not hands.clock.is_in_future(hands.clock.now())


def test_a_host_just_at_the_bound_does_not_go_back_and_forth() -> None:
    hands = Hands(skew=-APART_SECONDS - 1)
    assert never_backwards(hands.pass_(10), hands.clock.time() - 1)
    hands.skew = 0.5 - APART_SECONDS
    assert never_backwards(hands.pass_(60), hands.clock.time())
    assert hands.clock.is_set_by_control


@pytest.mark.parametrize("date", [None, "", "yesterday", "Sun, 99 Nov 2026 12:00:00 GMT"])
def test_what_is_no_date_sets_nothing(date: str | None) -> None:
    hands = Hands(skew=3_600.0)
    hands.clock.observe(date, 0.0)
    assert hands.off == 3_600
