"""The rule of a limit by the minute (GCRA): on one number, `full_at`, when all is free again.

Whatever is taken moves it on by a `step`, the time in which as much comes back. `gcra.lua` has the
same functions, to the last bit: what Redis counts and what a gateway counts is exchanged. A
gateway's own counters are enough to go by where Redis is away: a `full_at` is the same number for a
whole limit and for a gateway's part of it, since a part of half the size, half used, is whole again
at the same moment. So a gateway goes on from what Redis said last, by steps that are longer the
more gateways there are, and brings back to Redis what it came to."""

from collections import Counter
from dataclasses import dataclass

from serving.contract.limits import MINUTE
from serving.limits.plans import RateLimit

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


UNKNOWN_WAIT = 1e6
"""Until a running request ends, nobody knows how long: a second."""


@dataclass(frozen=True, slots=True)
class LimitAmount:
    """So much of one limit by the minute; below 0 it is given back."""

    check: RateLimit
    amount: int

    @property
    def step(self) -> float:
        """It as time, of the whole limit."""
        return step_of(self.amount, self.check.limit)


@dataclass(frozen=True, slots=True)
class LimitRequest:
    """All of it or nothing: amounts of limits by the minute, and one of each limit on concurrent
    requests. `tenant_id` is whose request it is."""

    tenant_id: str
    amounts: tuple[LimitAmount, ...]
    concurrent: tuple[RateLimit, ...]


@dataclass(frozen=True, slots=True)
class LimitDecision:
    """How it came out: in the order of the ask, when each allowance is full again and how many run,
    this one too where it is admitted. `share` gateways divided the limits, 1 where Redis did."""

    is_admitted: bool
    now: float
    full_ats: tuple[float, ...]
    in_use: tuple[int, ...]
    share: int = 1


@dataclass(frozen=True, slots=True)
class LimitViolation:
    """The limit that a request would break, the one that frees up last: of its amounts `used` and
    `wanted`, and how many microseconds until it would be admitted."""

    check: RateLimit
    used: int
    wanted: int
    wait: float


def violation_of(ask: LimitRequest, verdict: LimitDecision) -> LimitViolation:
    """Return why an ask was refused."""
    found = [*_violations_by_minute(ask, verdict), *_violations_at_once(ask, verdict)]
    return max(found, key=lambda one: one.wait)


def _violations_by_minute(ask: LimitRequest, verdict: LimitDecision) -> list[LimitViolation]:
    found = []
    for taking, full_at in zip(ask.amounts, verdict.full_ats, strict=True):
        check, amount = taking.check, taking.amount
        wait = lateness(full_at, verdict.now, step_of(amount, check.limit, verdict.share))
        ahead = max(full_at - verdict.now, 0.0)
        found.append(LimitViolation(check, round(ahead / step_of(1, check.limit)), amount, wait))
    return found


def _violations_at_once(ask: LimitRequest, verdict: LimitDecision) -> list[LimitViolation]:
    return [
        LimitViolation(check, running, 1, UNKNOWN_WAIT)
        for check, running in zip(ask.concurrent, verdict.in_use, strict=True)
        if running >= concurrent_share(check.limit, verdict.share)
    ]


def concurrent_share(limit: int, share: int) -> int:
    """Return how many may run at one of `share` gateways: one at least, or nothing would."""
    return max(limit // share, 1)


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """How a limit by the minute stands: what is left of it, and in how many seconds all is."""

    check: RateLimit
    remaining: int
    reset_seconds: float


def statuses_of(ask: LimitRequest, verdict: LimitDecision) -> tuple[LimitStatus, ...]:
    """Return how the limits by the minute stand after an ask."""
    return tuple(
        status_of(taking.check, max(full_at - verdict.now, 0.0))
        for taking, full_at in zip(ask.amounts, verdict.full_ats, strict=True)
    )


def status_of(check: RateLimit, ahead: float) -> LimitStatus:
    """Return how a limit stands that is whole again after so many microseconds."""
    left = max(int((MINUTE - ahead + SLACK) / step_of(1, check.limit)), 0)
    return LimitStatus(check, left, ahead / 1e6)


KNOWN_MAX = 200_000
"""Allowances that are not whole; past it those are forgotten that soonest would be."""


class LocalCounters:
    """When allowances are full again, and how many requests of ours run, by a limit's name."""

    def __init__(self) -> None:
        self.full_at: dict[str, float] = {}
        self.running: Counter[str] = Counter()
        self.changed: set[str] = set()
        """Limits whose running requests changed since Redis was told."""

    def decide(self, ask: LimitRequest, now: float, share: int) -> LimitDecision:
        """Decide by this gateway's part of each limit, and take all or nothing."""
        before = [believable(self.full_at.get(one.check.name, now), now) for one in ask.amounts]
        steps = [step_of(one.amount, one.check.limit, share) for one in ask.amounts]
        in_use = [self.running[check.name] for check in ask.concurrent]
        fits = all(admits(full, now, step) for full, step in zip(before, steps, strict=True))
        for check, running in zip(ask.concurrent, in_use, strict=True):
            fits = fits and running < concurrent_share(check.limit, share)
        if not fits:
            return LimitDecision(False, now, tuple(before), tuple(in_use), share)
        after = tuple(take(full, now, step) for full, step in zip(before, steps, strict=True))
        verdict = LimitDecision(True, now, after, tuple(count + 1 for count in in_use), share)
        self.record(ask, verdict)
        return verdict

    def record(self, ask: LimitRequest, verdict: LimitDecision) -> None:
        """Remember how a request was decided."""
        for taking, full_at in zip(ask.amounts, verdict.full_ats, strict=True):
            self.full_at[taking.check.name] = full_at
        if verdict.is_admitted:
            for check in ask.concurrent:
                self.running[check.name] += 1

    def settle(self, check: RateLimit, step: float, now: float) -> None:
        """Take or give back what a request took more or less than it had asked for."""
        full_at = self.full_at.get(check.name, now)
        self.full_at[check.name] = settle(full_at, now, step)

    def release(self, concurrent: tuple[RateLimit, ...]) -> None:
        """A request no longer runs."""
        for check in concurrent:
            self.running[check.name] -= 1
            if self.running[check.name] <= 0:
                del self.running[check.name]
            self.changed.add(check.name)

    def lateness(self, check: RateLimit, now: float, share: int) -> float:
        """Return how long one more would have to wait, as far as is known here."""
        return lateness(self.full_at.get(check.name, now), now, step_of(1, check.limit, share))

    def shift(self, by: float) -> None:
        """Move all moments: shared time is not what we took it for."""
        self.full_at = {name: full_at + by for name, full_at in self.full_at.items()}

    def forget(self, now: float) -> None:
        """Drop what says nothing any more."""
        known = {name: full_at for name, full_at in self.full_at.items() if full_at > now}
        if len(known) > KNOWN_MAX:
            kept = sorted(known, key=known.__getitem__, reverse=True)[:KNOWN_MAX]
            known = {name: known[name] for name in kept}
        self.full_at = known
