"""What can go wrong for the person at the terminal."""


class LocalError(Exception):
    """A mistake or a lack the person can mend; the message is one line, shown as it is."""


class StartFailed(LocalError):
    """Something that was started did not come up; its log says why."""
