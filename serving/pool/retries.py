"""A budget for second tries, so that trouble is not multiplied: retries are a tenth of traffic."""

SHARE = 0.1
SAVED_MAX = 10.0


class RetryBudget:
    """Every request saves `share` of a second try, up to ten of them; `saved` is there at first."""

    def __init__(self, share: float = SHARE, saved: float = SAVED_MAX) -> None:
        self._share = share
        self._saved = saved

    def note_request(self) -> None:
        """Count a request."""
        self._saved = min(SAVED_MAX, self._saved + self._share)

    def take(self) -> bool:
        """Tell whether a second try is allowed now, and count it."""
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True
