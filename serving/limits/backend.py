"""Decides about requests in batches: one call to Redis for many, and this gateway's own counters
where Redis is away."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter

import structlog

from serving.limits.gcra import LimitAmount, LimitDecision, LimitRequest, LocalCounters, step_of
from serving.limits.plans import RateLimit
from serving.limits.redis_script import (
    TOLERANCE,
    CounterStore,
    RedisUnavailable,
    ScriptCall,
    ScriptReply,
    SharedClock,
)
from serving.turn_queue import TurnQueue

log = structlog.get_logger(__name__)


class CounterIndex:
    """The counts of one batch, numbered as the script has them: from 2."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    def number(self, name: str) -> int:
        """Return a count's number."""
        return self.names.setdefault(name, len(self.names) + 2)


@dataclass(slots=True)
class PendingDecision:
    """An ask on its way, `since` when by the loop's clock."""

    ask: LimitRequest
    told: asyncio.Future[LimitDecision]
    since: float


@dataclass(slots=True)
class BackendBatch:
    """What the next call brings."""

    asks: list[PendingDecision] = field(default_factory=list)
    settled: list[LimitAmount] = field(default_factory=list)
    """What ended requests took more, or less, than they had asked for."""
    changed: list[str] = field(default_factory=list)
    """Limits of which more or fewer requests run than Redis was told."""
    since: float = 0.0
    """Since when the longest of them waits, by the loop's clock, but for others of its tenant's."""

    def write(self, batch: ScriptCall, running: Counter[str]) -> CounterIndex:
        """Write all of it into a batch; return the names of its counts."""
        names = CounterIndex()
        number = names.number
        batch.asked = [
            (
                [(number(one.check.name), one.step) for one in waiting.ask.amounts],
                [(number(check.name), check.limit) for check in waiting.ask.concurrent],
            )
            for waiting in self.asks
        ]
        batch.settled = [(number(one.check.name), one.step) for one in self.settled]
        met = {check.name for waiting in self.asks for check in waiting.ask.concurrent}
        batch.running = [(number(name), running[name]) for name in met.union(self.changed)]
        return names


WAIT_SECONDS = 0.05
"""That a request waits for Redis, at most: for the call that was under way, and for its own. Where
its tenant has more waiting than calls take, it waits for those too."""
SILENT = f"no answer within {WAIT_SECONDS * 1_000:.0f} ms"
PROBE_SECONDS = (0.02, 0.5)
"""How soon it is asked again, at first (it may have been our own loop that was late), and later."""
STEADY_SECONDS = 5.0
"""A line that was open for so long is trusted anew."""
RENEW_SECONDS = 2.0
"""Whoever knows anything calls this often: of running requests `gcra.lua` forgets what it was not
told for five seconds."""
YOUNG_SECONDS = 2.5
"""So long a new memory of Redis's is not gone by: within it each gateway tells what it knows."""
SETTLE_SECONDS = 0.005
"""What ended requests took may wait this long for company."""
FORGET_SECONDS = 10.0
UNSURE = {"clock": "its clock was stepped", "lost": "it lost its memory"}
PAGE = 500
"""Of what is known: limits of which one call tells how they stand, or how many requests run."""
BATCH_MAX = 100
"""Asks in one call: it takes Redis a few milliseconds, in which it does nothing else. Of more,
tenants take turns."""


class LimitBackend:
    """Decides requests by Redis while it `is_open`, else by this gateway's part of `share`
    gateways."""

    def __init__(
        self,
        window: CounterStore,
        counts: LocalCounters,
        clock: SharedClock,
        share: Callable[[], int],
    ) -> None:
        self.is_open = False
        self.why_away = "it was not asked yet"
        self.failures = 0
        self.calls = 0
        self._window = window
        self._counts = counts
        self._clock = clock
        self._share = share
        self._name = secrets.token_hex(8)
        """A gateway's next life is another one to Redis, whose running requests are its own."""
        self._life: str | None = None
        self._outgoing = BackendBatch()
        self._backlog: TurnQueue[PendingDecision] = TurnQueue(attrgetter("ask.tenant_id"))
        """Asks that the last call had no room for."""
        self._taken_at = 0.0
        """When that call began, by the loop's clock."""
        self._wake = asyncio.Event()
        self._is_settling = False
        self._is_due = False
        """Whether Redis is to be asked if only to hear that it remembers."""
        self._opened_at = 0.0
        self._pause = PROBE_SECONDS[0]

    async def decide(self, ask: LimitRequest) -> LimitDecision:
        """Decide, and take all or nothing."""
        told = self.submit(ask)
        try:
            return await told
        except asyncio.CancelledError:
            if not told.cancelled():  # else it is given back once it is judged
                self.undo(ask, told.result())
            raise

    def submit(self, ask: LimitRequest) -> asyncio.Future[LimitDecision]:
        """Have it decided, and all or nothing taken, whoever waits for it."""
        loop = asyncio.get_running_loop()
        waiting = PendingDecision(ask, loop.create_future(), loop.time())
        if self.is_open:
            self._outgoing.asks.append(waiting)
            self._wake.set()
        else:
            waiting.told.set_result(self._decide_locally(ask))
        return waiting.told

    def undo(self, ask: LimitRequest, verdict: LimitDecision) -> None:
        """Give back all that an ask took."""
        if not verdict.is_admitted:
            return
        for taking in ask.amounts:
            self.settle(LimitAmount(taking.check, -taking.amount))
        self.release(ask.concurrent)

    def settle(self, settled: LimitAmount) -> None:
        """Take or give back, soon."""
        if not self.is_open:
            self._settle_locally(settled)
            return
        self._outgoing.settled.append(settled)
        if not self._is_settling:
            self._is_settling = True
            asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._wake.set)

    def release(self, concurrent: tuple[RateLimit, ...]) -> None:
        """A request no longer runs: others may, at once."""
        if concurrent:
            self._counts.release(concurrent)
            self._wake.set()

    async def run(self) -> None:
        """Decide by Redis while it answers, for ever. Who waits as it ends is judged locally."""
        me = asyncio.current_task()
        try:
            async with asyncio.TaskGroup() as tasks:
                beside = [tasks.create_task(self._renew()), tasks.create_task(self._forget())]
                # redis-py was seen to swallow a cancellation that came just as it gave up.
                while me is not None and not me.cancelling():
                    await (self._flush() if self.is_open else self._probe())
                for task in beside:
                    task.cancel()
        finally:
            self.is_open = False
            self._switch_to_local(BackendBatch())

    async def close(self) -> None:
        """Let go of Redis."""
        await self._window.close()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            self._counts.changed.update(self._counts.running)
            self._is_due = bool(self._counts.full_at or self._counts.running)
            self._wake.set()

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(FORGET_SECONDS)
            self._counts.forget(self._clock.now())

    # Alone

    def _decide_locally(self, ask: LimitRequest) -> LimitDecision:
        return self._counts.decide(ask, self._clock.now(), self._share())

    def _settle_locally(self, settled: LimitAmount) -> None:
        step = step_of(settled.amount, settled.check.limit, self._share())
        self._counts.settle(settled.check, step, self._clock.now())

    async def _probe(self) -> None:
        """Look whether Redis is back, with all that is known here, and wait if it is not."""
        try:
            await self._window.open()
            age_seconds = await self._reconnect() / 1e6
        except (RedisUnavailable, TimeoutError) as away:
            self.why_away = str(away) or SILENT
            await self._rest()
        else:
            if age_seconds < YOUNG_SECONDS:
                self.why_away = "it lost its memory: all gateways tell it what they know"
                await asyncio.sleep(YOUNG_SECONDS - age_seconds)
            else:
                self.is_open, self._opened_at = True, time.monotonic()
                log.info("limits_shared", calls=self.calls, failures=self.failures)

    async def _rest(self) -> None:
        pause = self._pause
        self._pause = min(pause * 2, PROBE_SECONDS[1])
        await asyncio.sleep(pause)

    async def _disconnect(self, away: RedisUnavailable, outgoing: BackendBatch) -> None:
        """Go on alone, for a while at least: who is slow by turns is not asked at each turn."""
        self.is_open = False
        if time.monotonic() - self._opened_at > STEADY_SECONDS:
            self._pause = PROBE_SECONDS[0]
        self.failures += 1
        self.why_away = str(away)
        log.warning("limits_apart", reason=self.why_away, gateways=self._share())
        self._switch_to_local(outgoing)
        await self._rest()

    def _switch_to_local(self, outgoing: BackendBatch) -> None:
        """Judge and settle here what was on its way, and what would have followed."""
        self._counts.changed.update(outgoing.changed)
        later, self._outgoing = self._outgoing, BackendBatch()
        for settled in (*outgoing.settled, *later.settled):
            self._settle_locally(settled)
        for waiting in (*outgoing.asks, *self._backlog.take(self._backlog.count), *later.asks):
            self._resolve(waiting, self._decide_locally(waiting.ask))

    # Together

    async def _flush(self) -> None:
        """Bring to Redis what came together, and tell who asked."""
        await self._wake.wait()
        self._wake.clear()
        outgoing = self._take()
        if not (outgoing.asks or outgoing.settled or outgoing.changed or self._is_due):
            return
        self._is_due = False
        try:
            async with asyncio.timeout_at(outgoing.since + WAIT_SECONDS):
                reply = await self._exchange(outgoing)
        except RedisUnavailable as away:
            await self._disconnect(away, outgoing)
            return
        except TimeoutError:
            await self._disconnect(RedisUnavailable(SILENT), outgoing)
            return
        except BaseException:
            self._switch_to_local(outgoing)
            raise
        for settled in outgoing.settled:
            self._counts.settle(settled.check, settled.step, reply.now)
        for waiting, told in zip(outgoing.asks, reply.verdicts, strict=True):
            verdict = LimitDecision(told.is_admitted, reply.now, told.full_ats, told.in_use)
            self._counts.record(waiting.ask, verdict)
            self._resolve(waiting, verdict)

    def _take(self) -> BackendBatch:
        """Return what waits, as much as one call may bring."""
        self._is_settling = False
        taken, self._outgoing = self._outgoing, BackendBatch()
        clock = asyncio.get_running_loop().time
        taken.since = taken.asks[0].since if taken.asks else clock()
        if self._backlog.count or len(taken.asks) > BATCH_MAX:
            if self._backlog.count:
                taken.since = self._taken_at
            self._taken_at = clock()
            self._backlog.put(taken.asks)
            taken.asks = self._backlog.take(BATCH_MAX)
            if self._backlog.count:
                self._wake.set()
        taken.changed = list(islice(self._counts.changed, PAGE))
        self._counts.changed.difference_update(taken.changed)
        if self._counts.changed:
            self._wake.set()
        return taken

    def _resolve(self, waiting: PendingDecision, verdict: LimitDecision) -> None:
        if waiting.told.done():
            self.undo(waiting.ask, verdict)
        else:
            waiting.told.set_result(verdict)

    async def _exchange(self, outgoing: BackendBatch) -> ScriptReply:
        """Return what Redis says of them. Raises RedisUnavailable, also where it forgot or is not
        sure of the time: then nothing was done."""
        batch = self._new_batch(self._clock.expected(), self._life)
        reply = await self._call_script(outgoing.write(batch, self._counts.running), batch)
        if reply.kind != "ok":
            raise RedisUnavailable(UNSURE[reply.kind])
        return reply

    async def _call_script(self, names: CounterIndex, batch: ScriptCall) -> ScriptReply:
        self.calls += 1
        reply = await self._window.decide(list(names.names), batch)
        if reply.kind == "ok":
            behind = self._clock.observe(reply.now)
            if abs(behind) > TOLERANCE:
                self._counts.shift(behind)
        return reply

    def _new_batch(self, expected: float | None = None, life: str | None = None) -> ScriptCall:
        return ScriptCall(self._name, secrets.token_hex(8), expected, life)

    async def _reconnect(self) -> float:
        """Agree with Redis on the time, tell it what it may have forgotten, and return how old its
        memory is. Raises RedisUnavailable.

        A clock that was stepped is put right for all, and Redis's memory called a new one: others
        tell what they know as well, since counts run out by the stepped clock.
        """
        async with asyncio.timeout(WAIT_SECONDS):
            first = await self._call_script(CounterIndex(), self._new_batch(self._clock.expected()))
        if first.kind == "clock":
            setting = self._new_batch()
            if self._clock.contradicts(first.now):
                log.warning("limits_clock_stepped", seconds=(first.now - self._clock.now()) / 1e6)
                setting.offset = self._clock.correct(first.raw)
            first = await self._call_script(CounterIndex(), setting)
        self._life = first.life
        for names, page in self._all_pages():
            await self._call_script(names, page)
        return first.age

    def _all_pages(self) -> Iterator[tuple[CounterIndex, ScriptCall]]:
        """All that is known here, in batches."""
        counts, now = self._counts, self._clock.now()
        known = [(name, full_at) for name, full_at in counts.full_at.items() if full_at > now]
        running = list(counts.running.items())
        for start in range(0, max(len(known), len(running)), PAGE):
            names, page = CounterIndex(), self._new_batch()
            page.known = [(names.number(name), at) for name, at in known[start : start + PAGE]]
            page.running = [(names.number(name), n) for name, n in running[start : start + PAGE]]
            yield names, page
