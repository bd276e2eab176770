"""Why a request gets no slot.

PoolError
├── NoReplica       no replica of the deployment is ready; in `seconds` one should be, if any
├── NoSpare         a second try finds no place, or is not allowed
├── Overloaded      too much waits, or it would wait for too long: come back in `seconds`
│   └── TooManyWaiting   of the organization's own
└── Quarantined     such requests broke engines: refused for `seconds` more
"""

from typing import Literal

Cause = Literal["pressed", "queue_full", "outweighed", "too_long", "waited", "organization_full"]
"""pressed            too many tokens wait or run for a request of its tier
queue_full         too much waits in all, and no organization has more waiting than this one
outweighed         it waited, and was given up for one of an organization with less waiting
too_long           its turn would come after its deadline
waited             its deadline came before its turn
organization_full  its organization has too much waiting
"""


class PoolError(Exception):
    """No slot for this request."""


class NoReplica(PoolError):
    """No replica of the deployment is ready. Where one `is_coming`, it should be in `seconds`;
    None: nobody knows."""

    def __init__(
        self, deployment_id: str, seconds: float | None = None, *, is_coming: bool = False
    ) -> None:
        super().__init__(deployment_id)
        self.seconds = seconds
        self.is_coming = is_coming


class NoSpare(PoolError):
    """No replica has a place to spare for a second try, or too many have had one."""


class Overloaded(PoolError):
    """It cannot wait here; in `seconds` there should be room again."""

    def __init__(self, cause: Cause, seconds: float = 0.0) -> None:
        super().__init__(cause)
        self.cause = cause
        self.seconds = seconds


class TooManyWaiting(Overloaded):
    """The organization's own requests fill what it may have waiting."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__("organization_full", seconds)


class Quarantined(PoolError):
    """Such requests broke engines; they are refused for `seconds` more."""

    def __init__(self, seconds: float) -> None:
        super().__init__("quarantined")
        self.seconds = seconds
