"""Fixed buckets of TTFT, so that sums of sums still give percentiles. Durations, never money."""

from bisect import bisect_right
from collections.abc import Sequence

BOUNDS_SECONDS = (
    0.002, 0.003, 0.005, 0.007, 0.010, 0.015, 0.020, 0.030, 0.050, 0.070, 0.100, 0.150, 0.200,
    0.300, 0.500, 0.700, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 60.0, 10.0**7,
)  # fmt: skip
"""Upper bounds: about half as much again each, so a percentile is off by a quarter at most.
The last is the longest duration that the contract allows."""
BUCKET_COUNT = len(BOUNDS_SECONDS)


def bucket(seconds: float) -> int:
    """Return the index of the bucket that `seconds` falls into."""
    return min(bisect_right(BOUNDS_SECONDS, seconds), BUCKET_COUNT - 1)


def add(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """Return the counts of both."""
    return tuple(a + b for a, b in zip(left, right, strict=True))


def percentile_seconds(counts: Sequence[int], percent: int) -> float | None:
    """Return the percentile, interpolated within its bucket; None when nothing was counted.

    Worked example: 10 counts between 0.1 and 0.15 s, p50 is half way through them, 0.125 s.
    """
    wanted = sum(counts) * percent / 100
    if wanted == 0:
        return None
    seen = 0
    for index, count in enumerate(counts):
        if count and seen + count >= wanted:
            low = BOUNDS_SECONDS[index - 1] if index else 0.0
            return low + (BOUNDS_SECONDS[index] - low) * (wanted - seen) / count
        seen += count
    return BOUNDS_SECONDS[-1]
