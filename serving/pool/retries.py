"""A budget for second tries, so that trouble is not multiplied: a tenth of the traffic."""

SHARE = 0.1
SAVED_MAX = 10.0


class RetryBudget:
    """Every request saves a tenth of a retry, up to ten."""

    def __init__(self) -> None:
        self._saved = SAVED_MAX

    def note_request(self) -> None:
        """Count a request."""
        self._saved = min(SAVED_MAX, self._saved + SHARE)

    def take(self) -> bool:
        """Tell whether a retry is allowed now, and count it."""
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True
