"""How limits stand, as a reply tells it."""

from dataclasses import dataclass

from serving.contract.limits import MINUTE
from serving.limits.ask import Ask, Verdict
from serving.limits.checks import Check
from serving.limits.gcra import SLACK, step_of


@dataclass(frozen=True, slots=True)
class Standing:
    """How a limit by the minute stands: what is left of it, and in how many seconds all is."""

    check: Check
    remaining: int
    reset_seconds: float


def standings_of(ask: Ask, verdict: Verdict) -> tuple[Standing, ...]:
    """Return how the limits by the minute stand after an ask."""
    return tuple(
        standing(taking.check, max(full_at - verdict.now, 0.0))
        for taking, full_at in zip(ask.takings, verdict.full_ats, strict=True)
    )


def standing(check: Check, ahead: float) -> Standing:
    """Return how a limit stands that is whole again after so many microseconds."""
    left = max(int((MINUTE - ahead + SLACK) / step_of(1, check.limit)), 0)
    return Standing(check, left, ahead / 1e6)
