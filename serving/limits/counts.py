"""What one gateway knows of all limits that it met: enough to go by where Redis is away.

A `full_at` is the same number for a whole limit and for a gateway's part of it: a part of half the
size, half used, is whole again at the same moment. So a gateway goes on from what Redis said last,
by steps that are longer the more gateways there are, and brings back to Redis what it came to.
"""

from collections import Counter

from serving.limits.ask import Ask, Verdict, part
from serving.limits.checks import Check
from serving.limits.gcra import admits, believable, lateness, settle, step_of, take

KNOWN_MAX = 200_000
"""Allowances that are not whole; past it those are forgotten that soonest would be."""


class Counts:
    """When allowances are full again, and how many requests of ours run, by a limit's name."""

    def __init__(self) -> None:
        self.full_at: dict[str, float] = {}
        self.running: Counter[str] = Counter()
        self.changed: set[str] = set()
        """Limits whose running requests changed since Redis was told."""

    def judge(self, ask: Ask, now: float, share: int) -> Verdict:
        """Decide by this gateway's part of each limit, and take all or nothing."""
        before = [believable(self.full_at.get(one.check.name, now), now) for one in ask.takings]
        steps = [step_of(one.amount, one.check.limit, share) for one in ask.takings]
        in_use = [self.running[check.name] for check in ask.places]
        fits = all(admits(full, now, step) for full, step in zip(before, steps, strict=True))
        for check, running in zip(ask.places, in_use, strict=True):
            fits = fits and running < part(check.limit, share)
        if not fits:
            return Verdict(False, now, tuple(before), tuple(in_use), share)
        after = tuple(take(full, now, step) for full, step in zip(before, steps, strict=True))
        verdict = Verdict(True, now, after, tuple(count + 1 for count in in_use), share)
        self.note(ask, verdict)
        return verdict

    def note(self, ask: Ask, verdict: Verdict) -> None:
        """Remember how an ask came out."""
        for taking, full_at in zip(ask.takings, verdict.full_ats, strict=True):
            self.full_at[taking.check.name] = full_at
        if verdict.is_admitted:
            for check in ask.places:
                self.running[check.name] += 1

    def settle(self, check: Check, step: float, now: float) -> None:
        """Take or give back what a request took more or less than it had asked for."""
        full_at = self.full_at.get(check.name, now)
        self.full_at[check.name] = settle(full_at, now, step)

    def leave(self, places: tuple[Check, ...]) -> None:
        """A request no longer runs."""
        for check in places:
            self.running[check.name] -= 1
            if self.running[check.name] <= 0:
                del self.running[check.name]
            self.changed.add(check.name)

    def lateness(self, check: Check, now: float, share: int) -> float:
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
