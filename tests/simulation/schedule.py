"""Calls at once, one SQL statement at a time, in an order that a seed chooses.

Each call runs in a thread with its own session and parks before every statement, before a commit
and after it. One thread is let go on at a time; when its statement waits for a lock that another
holds, it is left waiting and others go on. So a schedule is the same whenever its seed is.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Literal

import psycopg
from django.db import DatabaseError, DataError, OperationalError, connection

from tests.simulation.clock import CHANCE
from tests.simulation.session import Session
from tests.simulation.turns import Turns

PATIENCE = "SET LOCAL lock_timeout"
"""A call that waits for a lock no longer than it says: when that is over is for the seed to say."""
LOOK_SECONDS = 0.004
"""A statement that takes longer may be waiting for a lock: the server is asked, ever less often."""
LONGEST_LOOK_SECONDS = 0.064
UNSEEN = ("SAVEPOINT", "RELEASE", "SET LOCAL jit", "SET LOCAL work_mem", "SET LOCAL enable")
"""Statements that nobody else can tell from no statement at all."""
UNDO = ("ROLLBACK", "RELEASE")
"""What undoes a part of a transaction, or ends one, fails with its session alone: a crash."""
GIVING_UP_SHARE = 0.5
STUCK_SECONDS = 30.0
DEADLOCK = "40P01"
GIVEN_UP = "57014"

# Who waits for the server's own work, such as a vacuum that gives pages back, is only slow.
BLOCKED = """
SELECT pid FROM unnest(%s::int[]) AS pid WHERE EXISTS (
    SELECT FROM unnest(pg_blocking_pids(pid)) AS holder, pg_stat_get_activity(holder) AS session
    WHERE session.backend_type = 'client backend'
)
"""
CANCEL = "SELECT pg_cancel_backend(%s)"

FAILURE = "made to fail"


def _for_now(cause: type[psycopg.Error]) -> Callable[[], DatabaseError]:
    """Return an error as of a database that is busy, or away."""

    def fail() -> DatabaseError:
        error = OperationalError(FAILURE)
        error.__cause__ = cause(FAILURE)
        return error

    return fail


FAILURES: tuple[Callable[[], DatabaseError], ...] = (
    lambda: DataError(FAILURE),
    _for_now(psycopg.errors.SerializationFailure),
    _for_now(psycopg.errors.LockNotAvailable),
    _for_now(psycopg.errors.AdminShutdown),
)
"""What a statement that is made to fail may raise."""
State = Literal["parked", "running", "blocked", "done"]
Kind = Literal["statement", "commit", "committed", "outside"]


class Crashed(BaseException):
    """The calling process died at this point."""


class StuckError(AssertionError):
    """A statement neither ended nor waited for anybody."""


@dataclass(frozen=True, slots=True)
class Call:
    """A service call to make; it dies at its n-th point where `crash_at` is n."""

    name: str
    work: Callable[[], Any]
    seed: object
    crash_at: int | None = None
    fails_at: int | None = None
    """A statement from this point on fails once, as a poisonous row or a full disk would."""
    failure: Callable[[], DatabaseError] = lambda: DataError(FAILURE)


@dataclass(slots=True)
class Outcome:
    """What came of a call: a value, an error, or nothing, because the caller died."""

    name: str
    value: Any = None
    error: BaseException | None = None
    has_crashed: bool = False
    was_deadlocked: bool = False
    has_failed: bool = False
    """Whether a statement was made to fail."""
    waited_for: list[str] = field(default_factory=list)
    """The statements that waited for somebody's lock."""
    waited_long: list[str] = field(default_factory=list)
    """Those of them in transactions that had not said how long they would wait."""
    has_given_up: bool = False
    """Whether it stopped waiting for a lock."""


@dataclass(frozen=True, slots=True)
class Point:
    """A place where a call parks."""

    name: str
    kind: Kind
    statement: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {' '.join(self.statement.split()) or self.kind}"


Event = tuple["Worker", Point | Outcome]


class Worker(threading.Thread):
    """A thread with its own database session that performs one call after another."""

    def __init__(self, events: "SimpleQueue[Event]") -> None:
        super().__init__(daemon=True)
        self.state: State = "done"
        self.point = ""
        self.backend_pid = 0
        self.is_patient = False
        self.is_bounded = False
        self.gives_up = False
        self.statement = ""
        """What it is about to say where it is parked, nothing where that is a commit."""
        self.params: Any = None
        self._is_ending = False
        self._statement = ""
        self._events = events
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._go: SimpleQueue[None] = SimpleQueue()
        self._call: Call | None = None
        self._points = 0
        self._outcome = Outcome("")
        self.start()

    def perform(self, call: Call) -> None:
        """Begin a call; it parks at once."""
        self.state = "running"
        self._calls.put(call)

    def go_on(self) -> None:
        """Leave the point where it is parked."""
        self.state = "running"
        self._go.put(None)

    def note_wait(self) -> None:
        """Note that the statement at work waits for a lock."""
        self._outcome.waited_for.append(self._statement)
        if not self.is_bounded:
            self._outcome.waited_long.append(self._statement)

    def end(self) -> None:
        """Tell the thread to end, whatever it is at, and its session with it."""
        self._is_ending = True
        self._go.put(None)
        self._calls.put(None)

    def run(self) -> None:
        """Perform calls until told to end."""
        connection.execute_wrappers.append(self._around)
        commit = connection._commit  # type: ignore[attr-defined]
        connection._commit = lambda: self._commit(commit)  # type: ignore[attr-defined]
        self._session = Session()
        while (call := self._calls.get()) is not None:
            self._events.put((self, self._perform(call)))
        self._session.end()

    def _perform(self, call: Call) -> Outcome:
        CHANCE.reseed(call.seed)
        self._call, self._points = None, 0
        self.is_patient = self.is_bounded = self.gives_up = False
        self._outcome = outcome = Outcome(call.name)
        connection.ensure_connection()
        self.backend_pid = connection.connection.info.backend_pid
        self._call = call
        try:
            outcome.value = call.work()
        except Crashed:
            outcome.has_crashed = True
        except Exception as error:
            outcome.error = error
        self._call = None
        return outcome

    def park_outside(self, words: str) -> None:
        """Park where something outside of the database is asked, or has answered."""
        self._park("outside", words)

    def _park(self, kind: Kind, statement: str = "") -> None:
        if self._call is None:
            return
        if self._is_ending:
            raise Crashed
        self.statement = statement if kind == "statement" else ""
        self._events.put((self, Point(self._call.name, kind, statement)))
        self._go.get()
        self._points += 1
        crash_at = self._call.crash_at
        if self._is_ending or (crash_at is not None and self._points > crash_at):
            self._session.lose()
            raise Crashed

    def _around(
        self, execute: Callable[..., Any], statement: str, params: Any, many: bool, context: Any
    ) -> Any:
        self._statement, self.params = statement, params
        if not statement.startswith(UNSEEN):
            self._park("statement", statement)
        if statement.startswith(PATIENCE):
            self.is_patient = self.is_bounded = True
            return None
        if not statement.startswith(UNDO):
            self._fail_once()
        try:
            return execute(statement, params, many, context)
        except DatabaseError as error:
            state = getattr(error.__cause__, "sqlstate", None)
            self._outcome.was_deadlocked |= state == DEADLOCK
            if state == GIVEN_UP and self.gives_up:
                self._outcome.has_given_up = True
                raise OperationalError("lock timeout") from psycopg.errors.LockNotAvailable()
            raise

    def _fail_once(self) -> None:
        if self._call is None or self._call.fails_at is None or self._outcome.has_failed:
            return
        if self._points > self._call.fails_at:
            self._outcome.has_failed = True
            raise self._call.failure()

    def _commit(self, commit: Callable[[], None]) -> None:
        if connection.connection is None:
            return
        self._park("commit")
        commit()
        self.is_patient = self.is_bounded = False
        self._park("committed")


def pause(words: str) -> None:
    """Park the call that this thread performs, where it performs one, outside of the database."""
    worker = threading.current_thread()
    if isinstance(worker, Worker):
        worker.park_outside(words)


@dataclass(slots=True)
class Scheduler:
    """Runs calls at once. `look` is called after each commit, `note` at each point, `check` before
    each statement and `check_wait` where one waits, both with the session that says it."""

    monitor: psycopg.Connection
    look: Callable[[], None] = lambda: None
    note: Callable[[str], None] = lambda _: None
    check: Callable[[int, str, Any], None] = lambda *_: None
    check_wait: Callable[[int, str], None] = lambda *_: None
    _events: "SimpleQueue[Event]" = field(default_factory=SimpleQueue)
    _workers: list[Worker] = field(default_factory=list)

    def run(self, calls: Sequence[Call], rng: random.Random) -> list[Outcome]:
        """Run the calls to their ends, interleaved as `rng` says; outcomes are in their order."""
        while len(self._workers) < len(calls):
            self._workers.append(Worker(self._events))
        workers = self._workers[: len(calls)]
        outcomes: dict[Worker, Outcome] = {}
        turns = Turns(workers, rng)
        for worker, call in zip(workers, calls, strict=True):
            worker.perform(call)
            self._take(outcomes, of=worker)
        while len(outcomes) < len(calls):
            ready = [worker for worker in workers if worker.state == "parked"]
            if ready:
                chosen = turns.next(ready)
                self.note(chosen.point)
                if chosen.statement:
                    self.check(chosen.backend_pid, chosen.statement, chosen.params)
                chosen.go_on()
                self._take(outcomes, of=chosen, rng=rng)
            self._take_unblocked(workers, outcomes, rng, must=not ready)
        return [outcomes[worker] for worker in workers]

    def close(self) -> None:
        """End all threads."""
        for worker in self._workers:
            worker.end()
        for worker in self._workers:
            worker.join(STUCK_SECONDS)
        self._workers.clear()

    def _take(
        self,
        outcomes: dict[Worker, Outcome],
        *,
        of: Worker,
        rng: random.Random | None = None,
    ) -> None:
        """Wait until a worker parks, ends, or waits for a lock."""
        waited, pause = 0.0, LOOK_SECONDS
        while of.state == "running":
            try:
                self._note(*self._events.get(timeout=pause), outcomes)
            except Empty:
                waited += pause
                pause = min(2 * pause, LONGEST_LOOK_SECONDS)
                if self._blocked([of]):
                    self._leave_waiting(of, rng)
                elif waited > STUCK_SECONDS:
                    raise StuckError(f"{of.name} is stuck") from None

    def _leave_waiting(self, worker: Worker, rng: random.Random | None) -> None:
        """Decide once whether a patient call gives up or gets its lock in time."""
        self.check_wait(worker.backend_pid, worker.point)
        if worker.is_patient and rng is not None:
            worker.is_patient = False
            worker.gives_up = rng.random() < GIVING_UP_SHARE
            if worker.gives_up:
                self.monitor.execute(CANCEL, [worker.backend_pid])
                return
        worker.state = "blocked"
        worker.note_wait()

    def _take_unblocked(
        self,
        workers: Sequence[Worker],
        outcomes: dict[Worker, Outcome],
        rng: random.Random,
        *,
        must: bool,
    ) -> None:
        """Let those go on to their next point whose locks came free; with `must`, wait for one."""
        waiting = [worker for worker in workers if worker.state == "blocked"]
        still = self._blocked(waiting) if waiting else set()
        for worker in waiting:
            is_free = must or worker.backend_pid not in still
            if is_free and worker.state == "blocked":
                worker.state = "running"
                self._take(outcomes, of=worker, rng=rng)

    def _blocked(self, workers: Sequence[Worker]) -> set[int]:
        pids = [worker.backend_pid for worker in workers]
        return {pid for (pid,) in self.monitor.execute(BLOCKED, [pids])}

    def _note(self, worker: Worker, what: Point | Outcome, outcomes: dict[Worker, Outcome]) -> None:
        if isinstance(what, Outcome):
            worker.state = "done"
            outcomes[worker] = what
            return
        worker.state, worker.point = "parked", str(what)
        if what.kind == "committed":
            self.look()
