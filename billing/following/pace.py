"""How often a follower reads on: the more it has to do, the longer it gathers.

A row of sums is written once a page, for however many events. Under heavy traffic of ten thousand
organizations, pages of two seconds would write a row for almost every event.
"""

import time
from collections.abc import Callable
from ctypes import c_double
from dataclasses import dataclass, field
from multiprocessing import get_context

REST = 9
"""How many times as long as it worked a follower rests: it takes a tenth of a core at most."""
REST_SECONDS_MAX = 10.0
"""Charts, and the ledger's view of today, are this old at most while followers keep up."""


@dataclass(slots=True)
class Pace:
    """When one follower may read on, for this process and those forked from it; `clock` is
    monotonic seconds, which the processes of a machine share."""

    clock: Callable[[], float] = time.monotonic
    _rests_until: c_double = field(default_factory=lambda: get_context("fork").RawValue(c_double))

    def run(self, work: Callable[[], object]) -> bool:
        """Do the work unless it rests, then rest; return whether it did."""
        began = self.clock()
        if began < self._rests_until.value:
            return False
        work()
        ended = self.clock()
        self._rests_until.value = ended + min(REST_SECONDS_MAX, REST * (ended - began))
        return True
