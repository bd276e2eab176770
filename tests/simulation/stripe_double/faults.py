"""What may go wrong between us and Stripe, on purpose."""

import re
from dataclasses import dataclass
from typing import Literal

FaultKind = Literal[
    "lost_before", "lost_after", "slow_after", "rate_limit", "server_error", "error_after"
]


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests that match: `lost_before` does nothing and never
    answers, `lost_after` does the work and never answers, `slow_after` answers late, `server_error`
    does nothing and `error_after` does the work, and both say 500 whenever the key comes again."""

    kind: FaultKind
    path: str = ".*"
    method: str = "POST"
    times: int = 1

    def strikes(self, method: str, path: str) -> bool:
        """Tell whether it happens to this request; it then counts as one."""
        if self.times == 0 or method != self.method or not re.fullmatch(self.path, path):
            return False
        self.times -= 1
        return True
