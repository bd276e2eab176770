"""Grammars compiled ahead of the engines, in processes beside them."""

import asyncio
import hashlib
from collections.abc import Mapping

import structlog

from serving.aside.bench import Bench, Late
from serving.aside.process import Died
from serving.aside.turns import Busy, Turns
from serving.contract.grammar import GrammarQuestion, GrammarVerdict
from serving.contract.records import DeploymentRecord
from serving.engine.engine import Engine
from serving.verdicts import Verdicts

log = structlog.get_logger(__name__)

JOBS_MAX = 2
"""At once with one tokenizer; an organization has one."""
JUDGES_MAX = 4
"""Tokenizers that are kept loaded, a third of a gigabyte each."""
SECONDS_MAX = 5.0
"""More than a judge takes for a verdict."""
WAIT_SECONDS_MAX = 3.0
WAITING_MAX = 64
WAITING_OF_ONE_MAX = 4

Judge = tuple[str, ...]
"""A module and its arguments: what an engine's adapter says compiles as the engine does."""
Key = tuple[str, Judge, bytes]
"""Whose schemas, for which judge, and their digest."""
_UNKNOWN = GrammarVerdict("unknown")


class Grammars:
    """Verdicts on grammars. A judge is started when it is first asked for; until it is there, and
    for engines without one, nobody can tell."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = engines
        self._benches: dict[Judge, Bench] = {}
        self._starting: dict[Judge, asyncio.Task[None]] = {}
        self._verdicts = Verdicts[Key]()
        self._asked: dict[Key, asyncio.Task[GrammarVerdict]] = {}
        """What is being judged: who asks the same meanwhile hears the same."""

    async def judge(
        self, question: GrammarQuestion, deployment: DeploymentRecord | None
    ) -> GrammarVerdict:
        """Return what is known of an organization's schemas on a deployment's engine."""
        judge = deployment and self._engines[deployment.engine].grammar_judge(deployment)
        bench = judge and self._bench(judge)
        if not judge or not bench:
            return _UNKNOWN
        key = (question.organization_id, judge, _digest(question.schemas))
        known = self._verdicts.find(key)
        if known is not None:
            return known
        asked = self._asked.get(key)
        if asked is None:
            asked = asyncio.get_running_loop().create_task(self._find_out(key, bench, question))
            self._asked[key] = asked
            asked.add_done_callback(lambda _: self._asked.pop(key))
        # One that leaves takes nothing from those who wait for the same.
        return await asyncio.shield(asked)

    async def close(self) -> None:
        """End the judges."""
        tasks = [*self._starting.values(), *self._asked.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for bench in self._benches.values():
            await bench.close()

    async def _find_out(self, key: Key, bench: Bench, question: GrammarQuestion) -> GrammarVerdict:
        verdict = await self._ask(bench, question)
        self._verdicts.keep(key, verdict)
        return verdict

    async def _ask(self, bench: Bench, question: GrammarQuestion) -> GrammarVerdict:
        try:
            async with bench.process(question.organization_id) as process:
                verdict, _ = await process.ask(question.schemas)
        except Busy as busy:
            return GrammarVerdict("busy") if busy.is_own else _UNKNOWN
        except (Late, Died):
            return _UNKNOWN
        return verdict

    def _bench(self, judge: Judge) -> Bench | None:
        """Return the judge's bench once its first process is there; begin to start it."""
        if judge in self._benches:
            return self._benches[judge]
        if judge not in self._starting and len(self._starting) < JUDGES_MAX:
            task = asyncio.get_running_loop().create_task(self._start(judge))
            self._starting[judge] = task
        return None

    async def _start(self, judge: Judge) -> None:
        turns = Turns(
            JOBS_MAX,
            waiting_max=WAITING_MAX,
            waiting_of_one_max=WAITING_OF_ONE_MAX,
            wait_seconds_max=WAIT_SECONDS_MAX,
        )
        bench = Bench(judge, turns, seconds_max=SECONDS_MAX)
        try:
            await bench.warm()
        except Died:
            # Not asked again until the fleet's next life: it would only fail again.
            log.error("grammar_judge_failed", judge=judge)
            return
        self._benches[judge] = bench
        log.info("grammar_judge_ready", judge=judge)


def _digest(schemas: tuple[str, ...]) -> bytes:
    digest = hashlib.sha256()
    for schema in schemas:
        data = schema.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()
