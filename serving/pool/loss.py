"""Work on a replica that may be lost: what has no token then ends, to be tried elsewhere."""

import asyncio
from types import TracebackType

from serving.engine.errors import ReplicaUnreachable


class Unanswered:
    """One request that waits for its first token; `with` it, by the task that works on it. Leaving
    it raises ReplicaUnreachable where the replica was lost meanwhile."""

    def __init__(self, among: set["Unanswered"]) -> None:
        self._among = among
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_lost = False

    def answered(self) -> None:
        """A token came: what began is not begun anew."""
        self._among.discard(self)

    def lose(self) -> None:
        """The replica is no more."""
        self._among.discard(self)
        if self._task is not None:
            self._is_lost = True
            self._task.cancel()

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can lose its replica")
        self._task, self._cancelling = task, task.cancelling()
        self._among.add(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        self._among.discard(self)
        if not self._is_lost or task is None:
            return
        # As asyncio.timeout does: the cancellation is ours unless somebody else asked too.
        ours = kind is not None and issubclass(kind, asyncio.CancelledError)
        if task.uncancel() <= self._cancelling and ours:
            raise ReplicaUnreachable("the fleet calls it failed") from None
