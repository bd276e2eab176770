"""Returns on their way to billing: what stopped leases have to tell, a page at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from serving.contract.lease import LeaseReturn
from serving.usage.lease import Outbox

RETRY_SECONDS = 0.5
RETRY_MAX_SECONDS = 60.0


@dataclass(slots=True)
class Wait:
    """How often billing left a return out of its answer, and when it is sent again."""

    tries: int
    until: float


class Returns:
    """Serves the outbox that stopped leases put themselves into. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self.outbox: Outbox = {}
        self._waits: dict[str, Wait] = {}

    def page(self, now: float, limit: int) -> list[LeaseReturn]:
        """Return what billing should be told now, at most `limit`."""
        page: list[LeaseReturn] = []
        for lease_id in list(islice(self._due(now), limit)):
            back = self.outbox[lease_id].due_return()
            if back is None:
                self._leave(lease_id)
            else:
                page.append(back)
        return page

    def take(self, back: LeaseReturn) -> None:
        """Hear that billing took a return."""
        lease = self.outbox.get(back.lease_id)
        if lease is None:
            return
        lease.kept_nanos = back.keep_nanos
        self._waits.pop(back.lease_id, None)
        if back.closed or lease.due_return() is None:
            self._leave(back.lease_id)

    def put_off(self, back: LeaseReturn, now: float) -> None:
        """Hear that billing left a return out of its answer: it goes to the end of the line, and
        waits longer each time."""
        lease = self.outbox.pop(back.lease_id, None)
        if lease is None:
            return
        self.outbox[back.lease_id] = lease
        wait = self._waits.setdefault(back.lease_id, Wait(0, now))
        wait.until = now + min(RETRY_MAX_SECONDS, RETRY_SECONDS * 2 ** min(wait.tries, 10))
        wait.tries += 1

    def clear(self) -> None:
        """Forget everything."""
        self.outbox.clear()
        self._waits.clear()

    def _due(self, now: float) -> Iterator[str]:
        waits = self._waits
        if not waits:
            return iter(self.outbox)
        return (id_ for id_ in self.outbox if id_ not in waits or waits[id_].until <= now)

    def _leave(self, lease_id: str) -> None:
        del self.outbox[lease_id]
        self._waits.pop(lease_id, None)
