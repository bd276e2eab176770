"""What may cut one request short: its client leaves, a deadline passes, or the gateway ends.

Inside `with scope:` either of them cancels the awaiting task, and leaving the block turns
that into Interrupted. Deadlines are lazy: pushing one further costs an assignment, no timer.
"""

import asyncio
from types import TracebackType
from typing import Literal

LOOK_SECONDS = 1.0
"""The longest a timer is set for: setting one again for each nearer deadline costs more."""

Reason = Literal["client_gone", "first_byte", "gap", "total", "gateway_stopping"]


class RequestCancelled(Exception):
    """The work stops here; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class CancelScope:
    """Belongs to the task that enters it. Times are the event loop's, in seconds."""

    def __init__(self, total_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self.reason: Reason | None = None
        """Why the work was cut short, if it was."""
        self.is_detached = False
        """Whether the work goes on for nobody, to learn what it took."""
        self._end_at = self._loop.time() + total_seconds
        self._end_reason: Reason = "total"
        self.deadline_at = self._end_at
        """Who sets it later, for the same reason, costs an assignment."""
        self._deadline_reason: Reason = "total"
        self._timer: asyncio.TimerHandle | None = None

    def client_gone(self) -> None:
        """Say that nobody listens any more."""
        self._fire("client_gone")

    def gateway_stopping(self) -> None:
        """Say that this process waits no longer."""
        self._fire("client_gone" if self.is_detached else "gateway_stopping")

    def detach(self, seconds: float) -> None:
        """Say the same of work that may go on for so long."""
        self.is_detached = True
        end_at = self._loop.time() + seconds
        if end_at < self._end_at:
            self._end_at, self._end_reason = end_at, "client_gone"
        if self._timer is not None:
            self._arm()

    def set_deadline(self, reason: Reason, seconds: float) -> None:
        """Interrupt with `reason` unless something else is expected within `seconds`."""
        self.deadline_at, self._deadline_reason = self._loop.time() + seconds, reason
        if self._timer is not None and self.deadline_at < self._timer.when():
            self._arm()

    def clear_deadline(self) -> None:
        """Wait as long as all may take."""
        self.deadline_at, self._deadline_reason = self._end_at, self._end_reason

    def __enter__(self) -> "CancelScope":
        if self.reason is not None:
            raise RequestCancelled(self.reason)
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can be interrupted")
        self._task, self._cancelling = task, task.cancelling()
        self._arm()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.reason is None or task is None:
            return
        # As asyncio.timeout does: the cancellation is ours unless somebody else asked too.
        ours = kind is None or issubclass(kind, asyncio.CancelledError | Exception)
        if task.uncancel() <= self._cancelling and ours:
            raise RequestCancelled(self.reason) from None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        look_at = min(self.deadline_at, self._end_at, self._loop.time() + LOOK_SECONDS)
        self._timer = self._loop.call_at(look_at, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._end_at:
            self._fire(self._end_reason)
        elif now >= self.deadline_at:
            self._fire(self._deadline_reason)
        else:
            self._arm()

    def _fire(self, reason: Reason) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        if self._task is not None:
            self._task.cancel()
