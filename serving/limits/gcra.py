"""The rule of a limit by the minute (GCRA), on one number: `full_at`, when all is free again.

Whatever is taken moves it on by a `step`, the time in which as much comes back. `window.lua` has
the same functions, to the last bit: what Redis counts and what a gateway counts is exchanged.
"""

from serving.contract.limits import MINUTE

SLACK = 1e3
"""A millisecond, for what the sum of a minute's fractions is off: once, never anew."""
DEBT_MAX = 60 * MINUTE
"""No debt is longer than an hour: what lies further ahead is a clock's doing."""


def step_of(amount: float, limit: int, share: int = 1) -> float:
    """Return the time in which so much comes back; with `share` gateways, of one gateway's part."""
    return amount * (MINUTE / limit) * share


def lateness(full_at: float, now: float, step: float) -> float:
    """Return how long to wait until a step may be taken, at most 0 if it may be at once.

    What is more than a minute's worth waits for a whole allowance, and leaves a debt.
    """
    return max(full_at, now) + min(step, MINUTE) - (now + MINUTE)


def admits(full_at: float, now: float, step: float) -> bool:
    """Tell whether a step may be taken now."""
    return lateness(full_at, now, step) <= SLACK


def take(full_at: float, now: float, step: float) -> float:
    """Return `full_at` once a step is taken."""
    return max(full_at, now) + step


def settle(full_at: float, now: float, step: float) -> float:
    """Return `full_at` once a request took a `step` more than it had asked for, or less.

    What it did not need is free again, though it came back by itself meanwhile: others waited for
    it. So all that was settled since a limit was first met is never more than rate x time + burst,
    and since any later moment by no more than was asked for and not yet settled then.
    """
    return full_at + step if step < 0.0 else take(full_at, now, step)


def believable(full_at: float, now: float) -> float:
    """Return `full_at`, no further ahead than any request can have moved it."""
    return min(full_at, now + MINUTE + DEBT_MAX)
