"""The learning rate as a function of elapsed time, so that a busy machine does not spoil it."""

WARMUP_SHARE = 0.01
DECAY_FROM = 0.45


def rate(elapsed_share: float) -> float:
    """Warm-up, stable, then a straight decay to zero: the factor for the peak rate."""
    if elapsed_share < WARMUP_SHARE:
        return max(elapsed_share / WARMUP_SHARE, 0.02)
    if elapsed_share < DECAY_FROM:
        return 1.0
    return max((1.0 - elapsed_share) / (1.0 - DECAY_FROM), 0.0)
