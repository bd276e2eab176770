"""Progress: said at once, then now and then, with what a seed takes and how long it will last."""

from io import StringIO

import pytest

from tests.simulation.progress import Progress

pytestmark = pytest.mark.unit


class Terminal(StringIO):
    def isatty(self):
        return True


@pytest.fixture
def passes():
    """Return a clock, and what lets time pass on it."""
    now = [100.0]

    def clock():
        return now[0]

    def wait(seconds):
        now[0] += seconds

    clock.wait = wait
    return clock


def run(out, clock, *, seeds, seconds):
    progress = Progress(seeds, out, clock=clock)
    clock.wait(30)  # a database is made
    progress.begin()
    for _ in range(seeds):
        clock.wait(seconds)
        progress.step()
    progress.end()
    return progress


def test_lines_of_a_log_come_every_few_seconds(passes):
    out = StringIO()
    progress = run(out, passes, seeds=1000, seconds=1.25)
    first, second, *_, last = out.getvalue().splitlines()
    assert first == "0 of 1,000 seeds"
    assert second == "4 of 1,000 seeds clean, 1.25 s each, 21 min left"
    assert last == "1,000 of 1,000 seeds clean, 1.25 s each, 0 s left"
    assert out.getvalue().count("\n") == 251
    assert (progress.done, progress.seconds_each) == (1000, 1.25)


def test_a_terminal_shows_one_line_and_leaves_none(passes):
    out = Terminal()
    run(out, passes, seeds=3, seconds=1)
    assert "\n" not in out.getvalue()
    assert "\r\x1b[K2 of 3 seeds clean, 1.00 s each, 1 s left" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")
