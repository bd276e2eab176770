"""Percentiles from counts per bucket are near those of the values themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.following.latency import BOUNDS_SECONDS, BUCKET_COUNT, bucket, percentile_seconds

pytestmark = pytest.mark.unit


def counted(values):
    counts = [0] * BUCKET_COUNT
    for value in values:
        counts[bucket(value)] += 1
    return counts


@given(st.lists(st.floats(0.0, 60.0), min_size=1), st.sampled_from([50, 95]))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(values, percent):
    rank = -(-len(values) * percent // 100)
    true = sorted(values)[rank - 1]
    index = bucket(true)
    low = BOUNDS_SECONDS[index - 1] if index else 0.0
    assert low <= percentile_seconds(counted(values), percent) <= BOUNDS_SECONDS[index] * 1.000001


def test_a_worked_example():
    assert percentile_seconds(counted([0.12] * 10), 50) == pytest.approx(0.125)


def test_the_longest_duration_has_a_bucket():
    assert bucket(10.0**7) == BUCKET_COUNT - 1
