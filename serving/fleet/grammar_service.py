"""Grammars compiled ahead of the engines, in processes beside them."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from serving.contract.grammar import GrammarQuestion, GrammarVerdict
from serving.contract.records import DeploymentRecord
from serving.engine.adapter import EngineAdapter
from serving.grammar_verdicts import GrammarVerdicts
from serving.offload.pool import OffloadBusy, OffloadPool, OffloadTimeout, TenantSemaphore
from serving.offload.process import WorkerDied

log = structlog.get_logger(__name__)

JOBS_MAX = 2
"""At once with one tokenizer; an organization has one."""
STAYS_SECONDS = 60.0
"""For which a judge that is loaded stays, whoever else is asked for; and for which one that could
not be loaded is not tried again."""
SECONDS_MAX = 5.0
"""More than a judge takes for a verdict."""
WAIT_SECONDS_MAX = 4.0
"""With the verdict within the ten seconds for which a gateway waits."""
WAITING_MAX = 64
WAITING_OF_ONE_MAX = 4

Judge = tuple[str, ...]
"""A module and its arguments: what an engine's adapter says compiles as the engine does."""
Key = tuple[str, Judge, bytes]
"""Whose schemas, for which judge, and their digest."""
_UNKNOWN = GrammarVerdict("unknown")


@dataclass(slots=True)
class Loaded:
    """A judge's bench, and since when it is there."""

    pool: OffloadPool
    since: float


class GrammarService:
    """Verdicts on grammars. A judge starts with the first deployment that it is for and ends with
    the last; until it is there nobody can tell. At most `judges_max` are loaded: then the least
    recently used makes room for one that is asked for."""

    def __init__(
        self,
        engines: Mapping[str, EngineAdapter],
        *,
        judges_max: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engines = engines
        self._judges_max = judges_max
        self._clock = clock
        self._judges: OrderedDict[Judge, Loaded] = OrderedDict()
        """The least recently used first."""
        self._starting: dict[Judge, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._failed_at: dict[Judge, float] = {}
        self._verdicts = GrammarVerdicts[Key]()
        self._asked: dict[Key, asyncio.Task[GrammarVerdict]] = {}
        """What is being judged: who asks the same meanwhile hears the same."""

    async def judge(
        self, question: GrammarQuestion, deployment: DeploymentRecord | None
    ) -> GrammarVerdict:
        """Return what is known of an organization's schemas on a deployment's engine."""
        if deployment is None:
            return _UNKNOWN
        judge = self._engines[deployment.engine].grammar_compiler(deployment)
        if judge is None:
            return GrammarVerdict("unchecked")
        key = (question.organization_id, judge, _digest(question.schemas))
        known = self._verdicts.find(key)
        if known is not None:
            return known
        bench = self._bench(judge)
        if bench is None:
            return _UNKNOWN
        asked = self._asked.get(key)
        if asked is None:
            asked = asyncio.get_running_loop().create_task(self._find_out(key, bench, question))
            self._asked[key] = asked
            asked.add_done_callback(lambda _: self._asked.pop(key))
        # One that leaves takes nothing from those who wait for the same.
        return await asyncio.shield(asked)

    def set_deployments(self, deployments: Iterable[DeploymentRecord]) -> None:
        """Have the judges of deployments loaded before anybody asks, as many as may be, and end
        those of none."""
        running = [one for one in deployments if one.replicas_min and one.task == "generate"]
        found = (self._engines[one.engine].grammar_compiler(one) for one in running)
        wanted = {judge: None for judge in found if judge is not None}
        for judge in self._judges.keys() - wanted.keys():
            self._end(judge)
        for judge in wanted:
            if judge not in self._judges and self._count() < self._judges_max:
                self._begin(judge)

    async def close(self) -> None:
        """End the judges."""
        tasks = [*self._starting.values(), *self._asked.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for judge in [*self._judges]:
            self._end(judge)
        await asyncio.gather(*self._ending)

    async def _find_out(
        self, key: Key, bench: OffloadPool, question: GrammarQuestion
    ) -> GrammarVerdict:
        verdict = await self._ask(bench, question)
        self._verdicts.keep(key, verdict)
        return verdict

    async def _ask(self, bench: OffloadPool, question: GrammarQuestion) -> GrammarVerdict:
        try:
            async with bench.process(question.organization_id) as process:
                verdict, _ = await process.ask(question.schemas)
        except OffloadBusy as busy:
            return GrammarVerdict("busy") if busy.is_own else _UNKNOWN
        except (OffloadTimeout, WorkerDied):
            return _UNKNOWN
        return verdict

    def _bench(self, judge: Judge) -> OffloadPool | None:
        """Return the judge's bench once its first process is there; begin to start it."""
        loaded = self._judges.get(judge)
        if loaded is not None:
            self._judges.move_to_end(judge)
            return loaded.pool
        if self._count() < self._judges_max or self._has_made_room():
            self._begin(judge)
        return None

    def _count(self) -> int:
        return len(self._judges) + len(self._starting)

    def _has_made_room(self) -> bool:
        """End the least recently used, of those that had their time; tell whether there was one."""
        since_max = self._clock() - STAYS_SECONDS
        oldest = (judge for judge, loaded in self._judges.items() if loaded.since <= since_max)
        judge = next(oldest, None)
        if judge is not None:
            self._end(judge)
        return judge is not None

    def _begin(self, judge: Judge) -> None:
        failed_at = self._failed_at.get(judge)
        has_failed = failed_at is not None and self._clock() < failed_at + STAYS_SECONDS
        if judge not in self._starting and not has_failed:
            self._starting[judge] = asyncio.get_running_loop().create_task(self._start(judge))

    async def _start(self, judge: Judge) -> None:
        turns = TenantSemaphore(
            JOBS_MAX,
            waiting_max=WAITING_MAX,
            waiting_of_one_max=WAITING_OF_ONE_MAX,
            wait_seconds_max=WAIT_SECONDS_MAX,
        )
        bench = OffloadPool(judge, turns, seconds_max=SECONDS_MAX)
        try:
            await bench.warm()
        except WorkerDied:
            self._failed_at[judge] = self._clock()
            log.error("grammar_judge_failed", judge=judge, again_after_seconds=STAYS_SECONDS)
            return
        finally:
            del self._starting[judge]
        self._failed_at.pop(judge, None)
        self._judges[judge] = Loaded(bench, self._clock())
        log.info("grammar_judge_ready", judge=judge)

    def _end(self, judge: Judge) -> None:
        bench = self._judges.pop(judge).pool
        ending = asyncio.get_running_loop().create_task(bench.close())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


def _digest(schemas: tuple[str, ...]) -> bytes:
    digest = hashlib.sha256()
    for schema in schemas:
        data = schema.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()
