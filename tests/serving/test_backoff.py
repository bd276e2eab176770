"""Pauses double up to a bound, and differ among those who failed together."""

from hypothesis import given
from hypothesis import strategies as st

from serving.internal_http import Backoff


@given(st.integers(1, 10**6), st.floats(0.0, 1.0, exclude_max=True))
def test_a_pause_is_at_least_half_of_what_it_may_be_and_at_most_all(
    failures: int, chance: float
) -> None:
    whole = min(5.0, 0.2 * 2 ** min(failures - 1, 10))
    pause = Backoff(0.2, 5.0, lambda: chance).pause_seconds(failures)
    assert whole / 2 <= pause <= whole
