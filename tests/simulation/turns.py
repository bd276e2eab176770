"""Whose turn it is among calls at once.

An even choice at each statement mixes calls finely, and almost never lets one run from end to end
while another stands between two of its statements: ten statements in a row are a chance of 2^-10.
That is just how a lock that is missing shows. So half of the schedules go by rank, and the one who
runs falls to the last rank at few points (PCT: Burckhardt et al., ASPLOS 2010).
"""

import random
from collections.abc import Sequence
from typing import Generic, TypeVar

Caller = TypeVar("Caller")

RANKED_SHARE = 0.5
FALLS_MAX = 3
FALLS_WITHIN = 40
"""Schedules rarely have more points than this before the first call ends."""


class Turns(Generic[Caller]):
    """Chooses among callers that may go on, as `rng` says."""

    def __init__(self, callers: Sequence[Caller], rng: random.Random) -> None:
        self._rng = rng
        self._turn = 0
        self._ranks: dict[Caller, int] = {}
        self._falls: set[int] = set()
        if rng.random() < RANKED_SHARE:
            self._ranks = dict(
                zip(callers, rng.sample(range(len(callers)), len(callers)), strict=True)
            )
            self._falls = {rng.randrange(FALLS_WITHIN) for _ in range(rng.randint(1, FALLS_MAX))}

    def next(self, ready: Sequence[Caller]) -> Caller:
        """Return who goes on."""
        if not self._ranks:
            return self._rng.choice(ready)
        first = max(ready, key=self._ranks.__getitem__)
        self._turn += 1
        if self._turn in self._falls:
            self._ranks[first] = -self._turn
            first = max(ready, key=self._ranks.__getitem__)
        return first
