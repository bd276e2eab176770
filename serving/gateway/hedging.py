"""A second attempt beside one whose first token is late: whichever has a token first goes on, and
the other is cancelled at once.

What the engine of the other counted is known by an event of its own, `hedged`, which costs nothing.
"""

import asyncio
import time
from typing import Any

import msgspec

from serving.contract.ids import same_moment_id
from serving.contract.usage import UsageEvent
from serving.engine.errors import EngineError, RequestRejected
from serving.engine.events import NO_TOKENS
from serving.engine.request import EngineRequest
from serving.gateway.attempt import AttemptRunner, ReplicaAttempt
from serving.pool.pool import Slot
from serving.pool.slot_request import NoHedgeSlot, SlotRequest
from serving.usage.meter import RequestTimings, make_event


async def run_hedged(runner: AttemptRunner, slot: Slot) -> None:
    """Work on an urgent request on two replicas where the first lets it wait, and where that helps;
    else on one. Raises what the last attempt does."""
    if may_hedge(slot.request, runner.inference.engine_request):
        hedge = HedgedAttempt(runner, slot)
        runner.attempt = hedge.first
        await hedge.run()
    else:
        runner.attempt = ReplicaAttempt(runner.context, slot)
        await runner.attempt.run(runner.start, runner.record_first_token)


def may_hedge(slot_request: SlotRequest, engine_request: EngineRequest) -> bool:
    """Tell whether a request may be worked on twice at once: an urgent one of a single sequence,
    whose first token is seen, and for which no engine has to compile anything."""
    if (
        slot_request.tier != "priority"
        or slot_request.sequences > 1
        or engine_request.operation == "embeddings"
    ):
        return False
    return engine_request.grammars is None and engine_request.feature != "format"


class HedgeLost(Exception):
    """The other of two tries had a token first."""


class HedgedAttempt:
    """Belongs to the task that runs it; nothing keeps it longer. The runner hears that the first
    has its slot, that the second goes on in its place, and which had a token first."""

    def __init__(self, runner: AttemptRunner, slot: Slot) -> None:
        self.first = ReplicaAttempt(runner.context, slot)
        self.second: ReplicaAttempt | None = None
        self._context = runner.context
        self._journal = runner.services.journal
        self._metrics = runner.services.metrics
        self._record = runner.record
        self._on_start = runner.start
        self._on_chosen = runner.choose
        self._on_first_token = runner.record_first_token
        self._attempts = runner.attempts
        self._is_told = False
        self._chosen: ReplicaAttempt | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._first_task: asyncio.Task[object] | None = None
        self._second_task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Have the request answered, by either of the two. Raises what the last one does."""
        try:
            await self._run_first()
        except HedgeLost:
            self._abandon(self.first)
            await self._wait_for_winner()
        except RequestRejected:
            raise
        except EngineError:
            if not self._second_is_running:
                raise
            self._choose_second()
            self._abandon(self.first)
            await self._wait_for_winner()
        finally:
            await self._end()

    @property
    def _second_is_running(self) -> bool:
        task, second = self._second_task, self.second
        return not (task is None or task.done() or second is None or second.replica_id is None)

    async def _run_first(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can hedge")
        self._first_task, cancelling = task, task.cancelling()
        try:
            await self.first.run(self._first_started, self._first_token)
        except (asyncio.CancelledError, EngineError):
            # As asyncio.timeout does: the cancellation is ours unless somebody else asked too.
            if self.first.lost_hedge and task.uncancel() <= cancelling:
                raise HedgeLost from None
            raise
        finally:
            self._first_task = None

    def _first_started(self, first: ReplicaAttempt) -> None:
        self._on_start(first)
        seconds = first.slot.late_seconds
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._start_second)

    def _start_second(self) -> None:
        """The first token is late."""
        if self._chosen is None and not self._context.cancel_scope.is_detached:
            slot = self.first.slot.hedge_slot()
            self.second = ReplicaAttempt(self._context, slot)
            self._second_task = asyncio.create_task(self._run_second(self.second))

    def _second_started(self, second: ReplicaAttempt) -> None:
        # An id of the same moment: the same day, the same budgets, the same hour of the engine's.
        event_id = same_moment_id(self._record.event_id)
        self._record = msgspec.structs.replace(self._record, event_id=event_id)
        self._journal.open(event_id, lambda: self._event(second))
        self._attempts.append(second)

    async def _run_second(self, second: ReplicaAttempt) -> None:
        try:
            await second.run(self._second_started, self._first_token)
        except NoHedgeSlot:
            return
        except EngineError:
            if self._chosen is second:
                raise
        finally:
            if second.replica_id is not None and self._chosen is not second:
                self._abandon(second)

    def _first_token(self, of: ReplicaAttempt) -> None:
        """A try has its first token. Raises HedgeLost where it is not the first to."""
        if self._chosen is not None:
            if self._chosen is not of:
                raise HedgeLost
            return
        self._on_first_token(of)
        if self._timer is not None:
            self._timer.cancel()
        if of is self.second:
            self._choose_second()
            self._stop(self.first, self._first_task)
        else:
            self._chosen = self.first
            self._stop(self.second, self._second_task)

    def _stop(self, other: ReplicaAttempt | None, task: asyncio.Task[Any] | None) -> None:
        if other is not None and task is not None:
            other.lost_hedge = True
            task.cancel()

    def _choose_second(self) -> None:
        if self.second is not None:
            self._chosen = self.second
            self._on_chosen(self.second)

    async def _wait_for_winner(self) -> None:
        """The rest is the second's."""
        if self._second_task is not None:
            await self._second_task

    async def _end(self) -> None:
        """Leave nothing behind."""
        if self._timer is not None:
            self._timer.cancel()
        second, task = self.second, self._second_task
        if second is None or task is None:
            return
        second.lost_hedge = self._chosen is not second
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if second.replica_id is not None:
            self._abandon(self.first if self._chosen is second else second)

    def _abandon(self, one: ReplicaAttempt) -> None:
        """Report, once, which of two tries was not the one that counts."""
        if not self._is_told:
            self._is_told, event = True, self._event(one)
            self._metrics.note_hedge(event, "second" if one is self.first else "first")
            self._journal.commit_later(event)

    def _event(self, one: ReplicaAttempt) -> UsageEvent:
        seconds = time.perf_counter() - self._context.response.started_at
        return make_event(
            msgspec.structs.replace(self._record, deployment_id=one.deployment_id),
            outcome="hedged",
            replica_id=one.replica_id,
            tokens=one.counted() or NO_TOKENS,
            timings=RequestTimings(total_seconds=seconds),
        )
