"""How often a follower reads on: the more it has to do, the longer it gathers.

A row of sums is written once a page, for however many events. Under heavy traffic of ten thousand
organizations, pages of two seconds would write a row for almost every event.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

REST = 9
"""How many times as long as it worked a follower rests: it takes a tenth of a core at most."""
REST_SECONDS_MAX = 10.0
"""Charts, and the ledger's view of today, are this old at most while followers keep up."""


@dataclass(slots=True)
class Pace:
    """When one follower of this process may read on; `clock` is monotonic seconds."""

    clock: Callable[[], float] = time.monotonic
    rests_until: float = 0.0

    def run(self, work: Callable[[], object]) -> bool:
        """Do the work unless it rests, then rest; return whether it did."""
        began = self.clock()
        if began < self.rests_until:
            return False
        work()
        ended = self.clock()
        self.rests_until = ended + min(REST_SECONDS_MAX, REST * (ended - began))
        return True
