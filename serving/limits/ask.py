"""What a request asks of its limits, and what it was told."""

from dataclasses import dataclass

from serving.limits.checks import Check
from serving.limits.gcra import lateness, step_of

UNKNOWN_WAIT = 1e6
"""Until a running request ends, nobody knows how long: a second."""


@dataclass(frozen=True, slots=True)
class Taking:
    """So much of one limit by the minute; below 0 it is given back."""

    check: Check
    amount: int

    @property
    def step(self) -> float:
        """It as time, of the whole limit."""
        return step_of(self.amount, self.check.limit)


@dataclass(frozen=True, slots=True)
class Ask:
    """All of it or nothing: amounts of limits by the minute, and a place among those that run."""

    takings: tuple[Taking, ...]
    places: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it came out: in the order of the ask, when each allowance is full again and how many run,
    this one too where it is admitted. `share` gateways divided the limits, 1 where Redis did."""

    is_admitted: bool
    now: float
    full_ats: tuple[float, ...]
    in_use: tuple[int, ...]
    share: int = 1


@dataclass(frozen=True, slots=True)
class Excess:
    """The limit that a request would break, the one that frees up last: of its amounts `used` and
    `wanted`, and how many microseconds until it would be admitted."""

    check: Check
    used: int
    wanted: int
    wait: float


def excess_of(ask: Ask, verdict: Verdict) -> Excess:
    """Return why an ask was refused."""
    found = [*_excesses_by_minute(ask, verdict), *_excesses_at_once(ask, verdict)]
    return max(found, key=lambda one: one.wait)


def _excesses_by_minute(ask: Ask, verdict: Verdict) -> list[Excess]:
    found = []
    for taking, full_at in zip(ask.takings, verdict.full_ats, strict=True):
        check, amount = taking.check, taking.amount
        wait = lateness(full_at, verdict.now, step_of(amount, check.limit, verdict.share))
        ahead = max(full_at - verdict.now, 0.0)
        found.append(Excess(check, round(ahead / step_of(1, check.limit)), amount, wait))
    return found


def _excesses_at_once(ask: Ask, verdict: Verdict) -> list[Excess]:
    return [
        Excess(check, running, 1, UNKNOWN_WAIT)
        for check, running in zip(ask.places, verdict.in_use, strict=True)
        if running >= part(check.limit, verdict.share)
    ]


def part(limit: int, share: int) -> int:
    """Return how many may run at one of `share` gateways: one at least, or nothing would."""
    return max(limit // share, 1)
