"""Which database billing speaks for: a restored one has another lineage, and forgot things."""

from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class Lineage:
    """The lineage of billing's last answer, empty before the first; `remember` makes it last.

    Another one than before means that the database was restored from a backup: leases and usage
    that it does not know were lost with it.
    """

    def __init__(self, known: str, remember: Callable[[str], None]) -> None:
        self.known = known
        self.changes = 0
        self._remember = remember
        self._on_change: list[Callable[[], None]] = []

    def on_change(self, act: Callable[[], None]) -> None:
        """Call `act` whenever the lineage becomes another."""
        self._on_change.append(act)

    def hear(self, lineage: str) -> None:
        """Take in the lineage of an answer; empty says nothing."""
        before = self.known
        if lineage in ("", before):
            return
        self.known = lineage
        self._remember(lineage)
        if not before:
            return
        self.changes += 1
        log.error("billing_database_restored", lineage=lineage, before=before)
        for act in self._on_change:
            act()
