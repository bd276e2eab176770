"""Has each command judged before its engine starts. It is a check and no gate: where nobody can
judge in time, the engine starts all the same."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import structlog

from serving.contract.records import DeploymentRecord
from serving.engine.adapter import LaunchSpec
from serving.engine.command_check import MODULE, SECONDS_MAX, CommandVerdict, path_problem
from serving.engine.vllm import installed_device
from serving.fleet.launcher import StartRefused
from serving.offload.process import WorkerDied, WorkerProcess

log = structlog.get_logger(__name__)

KEPT_SECONDS = 60.0
"""For which the process stays after a command: it holds 700 MB, which an engine may wait for."""


ANY_PORT = "8000"


class CommandChecks:
    """One process judges all commands, one after the other. `roots` are the folders that weights
    are kept in; without any, a path may lead anywhere. `keeps` tells whether the process stays for
    the next command: where vLLM is for GPUs, it might hold some of their memory."""

    def __init__(
        self,
        roots: Sequence[Path] = (),
        *,
        keeps: bool | None = None,
        module: Sequence[str] = MODULE,
        seconds_max: float = SECONDS_MAX,
    ) -> None:
        self._roots = roots
        self._keeps = installed_device() == "cpu" if keeps is None else keeps
        self._module = module
        self._seconds_max = seconds_max
        self._turn = asyncio.Lock()
        self._asking = 0
        """How many have the turn or wait for it."""
        self._accepted: dict[str, tuple[str, ...]] = {}
        """The last command of each deployment that is known to be good."""
        self._process: WorkerProcess | None = None
        self._end: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def check(self, deployment: DeploymentRecord, launch: LaunchSpec) -> None:
        """Raise StartRefused for a command that vLLM would refuse, and for paths that lead to
        nothing or out of the folders of weights."""
        if deployment.engine != "vllm":
            return
        given = (deployment.weights, *deployment.engine_arguments)
        problem = await asyncio.to_thread(path_problem, given, self._roots)
        if not problem and self._accepted.get(deployment.deployment_id) == known_by(launch):
            return
        verdict = CommandVerdict(problem) if problem else await self._judge(launch)
        if verdict.unjudged:
            words = {"deployment_id": deployment.deployment_id, "reason": verdict.unjudged}
            log.warning("command_not_checked", **words)
        if verdict.problem:
            raise StartRefused(f"vLLM would refuse to start: {verdict.problem}")
        if not verdict.unjudged:
            self._accepted[deployment.deployment_id] = known_by(launch)

    async def close(self) -> None:
        """End the process."""
        if self._end is not None:
            self._end.cancel()
        self._begin_to_end()
        await asyncio.gather(*self._ending)

    async def _judge(self, launch: LaunchSpec) -> CommandVerdict:
        # The command is `python -m module arguments… --port PORT`; its node chooses the port later.
        question = ((*known_by(launch)[3:], ANY_PORT), dict(launch.environment))
        self._asking += 1
        try:
            async with asyncio.timeout(self._seconds_max), self._turn:
                return await self._ask(question)
        except TimeoutError:
            return CommandVerdict(unjudged=f"no verdict within {self._seconds_max:.0f} s")
        except WorkerDied:
            return CommandVerdict(unjudged="the process that judges ended")
        finally:
            self._asking -= 1
            if not self._asking and not self._keeps:
                self._begin_to_end()  # it was kept for one that waits no more

    async def _ask(self, question: tuple[tuple[str, ...], dict[str, str]]) -> CommandVerdict:
        """Ask the process, in one's turn. Raises WorkerDied."""
        if self._end is not None:
            self._end.cancel()
        try:
            if self._process is None or not self._process.is_alive:
                self._process = await WorkerProcess.start(self._module)
            verdict, _ = await self._process.ask(question)
        finally:
            await self._put_back()
        return verdict

    async def _put_back(self) -> None:
        """Keep a process that has nothing left to answer, for a while or for those who wait."""
        process = self._process
        if process is None:
            return
        is_wanted = self._keeps or self._asking > 1
        if not is_wanted or process.is_asked or not process.is_alive:
            self._process = None
            await process.kill()
            return
        self._end = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._begin_to_end)

    def _begin_to_end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        task = asyncio.get_running_loop().create_task(process.kill())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def known_by(launch: LaunchSpec) -> tuple[str, ...]:
    """Return a command but for the value of its last flag, the port."""
    return launch.command[:-1]
