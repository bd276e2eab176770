"""Time by control, wherever this host's clock is far off, and by no step of it."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from serving.usage.clock import APART_SECONDS, Clock

TRUE = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()


class Hands:
    """Both of a host's clocks and the true time, moved by hand."""

    def __init__(self, skew: float = 0.0) -> None:
        self.true = TRUE
        self.skew = skew
        self.clock = Clock(host=lambda: self.true + self.skew, monotonic=lambda: self.true - TRUE)

    def contact(self) -> None:
        """Control answers."""
        self.clock.hear(format_datetime(datetime.fromtimestamp(self.true, UTC), usegmt=True))


@pytest.mark.parametrize("skew", [3_600.0, -3_600.0, 86_400 * 400.0])
def test_a_clock_far_off_is_set_by_control(skew: float) -> None:
    hands = Hands(skew)
    received_at = hands.clock.now()
    hands.contact()
    assert abs(hands.clock.time() - hands.true) <= 1
    assert abs(hands.clock.skew_seconds - skew) <= 1
    assert hands.clock.is_set_by_control
    assert hands.clock.is_yet_to_come(received_at) == (skew > 0)
    hands.true += 100
    assert abs(hands.clock.time() - hands.true) <= 1


@pytest.mark.parametrize("step", [3_600.0, -3_600.0])
def test_a_step_moves_nothing_whether_control_answers_or_not(step: float) -> None:
    hands = Hands()
    hands.contact()
    hands.skew = step
    assert hands.clock.time() == hands.true
    for _ in range(10):
        hands.true += 0.5
        hands.contact()
        assert abs(hands.clock.time() - hands.true) <= APART_SECONDS
    assert hands.clock.is_set_by_control
    hands.skew = 0.0
    hands.contact()
    assert hands.clock.time() == hands.true
    assert not hands.clock.is_set_by_control


def test_what_control_says_to_the_second_does_not_shake_a_clock_that_is_right() -> None:
    hands = Hands(skew=0.3)
    for _ in range(20):
        hands.true += 0.1
        hands.contact()
        assert hands.clock.time() == pytest.approx(hands.true + 0.3)
        assert not hands.clock.is_yet_to_come(hands.clock.now())


@pytest.mark.parametrize("date", [None, "", "yesterday", "Sun, 99 Nov 2026 12:00:00 GMT"])
def test_what_is_no_date_sets_nothing(date: str | None) -> None:
    hands = Hands(skew=3_600.0)
    hands.clock.hear(date)
    assert hands.clock.time() == hands.true + 3_600
