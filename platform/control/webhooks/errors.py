"""Why a message could not be sent: in words that the customer may read."""


class Unreachable(Exception):
    """The endpoint was not called, or did not answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Forbidden(Unreachable):
    """The address leads to a network that webhooks do not go to."""
