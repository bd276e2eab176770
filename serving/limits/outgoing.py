"""What goes to Redis together, and how it is written."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from serving.limits.ask import Ask, Taking, Verdict
from serving.limits.window import Batch


class Names:
    """The counts of one batch, numbered as the script has them: from 2."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    def number(self, name: str) -> int:
        """Return a count's number."""
        return self.names.setdefault(name, len(self.names) + 2)


@dataclass(slots=True)
class Waiting:
    """An ask on its way, `since` when by the loop's clock."""

    ask: Ask
    told: asyncio.Future[Verdict]
    since: float


@dataclass(slots=True)
class Outgoing:
    """What the next call brings."""

    asks: list[Waiting] = field(default_factory=list)
    settled: list[Taking] = field(default_factory=list)
    """What ended requests took more, or less, than they had asked for."""
    changed: list[str] = field(default_factory=list)
    """Limits of which more or fewer requests run than Redis was told."""

    def asked_at(self) -> float:
        """Return since when the longest of them waits, by the loop's clock."""
        return self.asks[0].since if self.asks else asyncio.get_running_loop().time()

    def write(self, batch: Batch, running: Counter[str]) -> Names:
        """Write all of it into a batch; return the names of its counts."""
        names = Names()
        number = names.number
        batch.asked = [
            (
                [(number(one.check.name), one.step) for one in waiting.ask.takings],
                [(number(check.name), check.limit) for check in waiting.ask.places],
            )
            for waiting in self.asks
        ]
        batch.settled = [(number(one.check.name), one.step) for one in self.settled]
        met = {check.name for waiting in self.asks for check in waiting.ask.places}
        batch.running = [(number(name), running[name]) for name in met.union(self.changed)]
        return names
