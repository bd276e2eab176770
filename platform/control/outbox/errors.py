"""What a handler may say of a delivery that did not succeed; anything else it raises is retried.

Undelivered ─┬─ RetryLater  again after a time of its own choosing
             └─ GiveUp      never again: it cannot succeed

The reason is shown to operators and kept, so it holds no secret, link or content.
"""

from datetime import timedelta


class Undelivered(Exception):
    """A delivery that did not succeed, with a reason in words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RetryLater(Undelivered):
    """Try again after `after`, however often it was tried, until the kind's time is over."""

    def __init__(self, after: timedelta, reason: str = "asked to come again later") -> None:
        super().__init__(reason)
        self.after = after


class GiveUp(Undelivered):
    """It cannot succeed; an operator may retry it all the same."""
