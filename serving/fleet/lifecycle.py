"""The life of a replica: pending → loading → canary → ready → draining → stopped, or failed.

Health is progress: whether an engine with work reads or makes tokens, by its counters. One that
makes none and uses processors is at work too: it compiles a kernel or a grammar."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from serving.contract.node import ENGINE_PORT
from serving.contract.replica import State
from serving.engine.chat_template import template_tokens
from serving.engine.probe import EngineHealth, EngineProbe, EngineUnresponsive, exercises
from serving.engine.weights import WeightsUnreadable, check_weights
from serving.fleet.devices import device_environment
from serving.fleet.engine_process import last_stage
from serving.fleet.launcher import LaunchError, NoRoom, StartRefused
from serving.fleet.replica import ManagedReplica

log = structlog.get_logger(__name__)


COMPILING_PATIENCE = 3
"""How many times longer an engine may make no token while all that waits, waits for grammars."""
WORKING_PATIENCE = 6
"""The same while it uses processors: a first use was seen to compile for 24 s. Not for ever, since
an engine may spin."""
WORKING_CORES = 0.5
"""From what share of a core on an engine counts as working."""


class ProgressMonitor:
    """Judges one replica from what is observed; all times are monotonic seconds.

    `token_at` is when it was last seen to make a token for anybody.
    """

    def __init__(self, *, stuck_seconds: float, idle_probe_seconds: float, now: float) -> None:
        self.stuck_seconds = stuck_seconds
        self.idle_probe_seconds = idle_probe_seconds
        self._last: EngineHealth | None = None
        self._progress_at = now
        self._answered_at = now
        self._cpu_seconds = self._cpu_seconds_then = 0.0
        """Of processors, now and at the last progress."""
        self.token_at = now

    def record_cpu(self, cpu_seconds: float) -> None:
        """Take in what the engine has used of processors so far."""
        self._cpu_seconds = cpu_seconds

    def record_health(self, health: EngineHealth, now: float) -> None:
        """Take in the engine's counters."""
        self._answered_at = now
        if self._last is None or _moved(self._last, health):
            self.token_at = now
            self._progressed(now)
        elif health.is_idle:
            self._progressed(now)
        self._last = health

    def record_response(self, now: float) -> None:
        """Take in an answer of an engine that shows no counters."""
        self._answered_at = now
        self._progressed(now)

    def record_token(self, now: float) -> None:
        """Take in that a test generation succeeded."""
        self._answered_at = self.token_at = now
        self._progressed(now)

    def wants_probe(self, now: float) -> bool:
        """Tell whether no token was seen for so long that one should be asked for."""
        has_work = self._last is not None and not self._last.is_idle
        return not has_work and now - self.token_at >= self.idle_probe_seconds

    def problem(self, now: float) -> str | None:
        """Return what is wrong, None when nothing is."""
        is_working = self._works(self._cpu_seconds - self._cpu_seconds_then, now, self._progress_at)
        patience = WORKING_PATIENCE if is_working else 1
        if now - self._answered_at >= patience * self.stuck_seconds:
            return f"no answer for {now - self._answered_at:.0f} s"
        if self._last is not None and self._last.is_compiling:
            patience = max(patience, COMPILING_PATIENCE)
        if now - self._progress_at >= patience * self.stuck_seconds:
            return f"requests run, but no token was made for {now - self._progress_at:.0f} s"
        return None

    def excuses(self, probed_at: float, cpu_seconds: float, now: float) -> bool:
        """Tell whether an engine that left a probe unanswered works on something else: it used so
        much of processors meanwhile."""
        limit = self.idle_probe_seconds + WORKING_PATIENCE * self.stuck_seconds
        return now - self.token_at < limit and self._works(cpu_seconds, now, probed_at)

    def _progressed(self, now: float) -> None:
        self._progress_at = now
        self._cpu_seconds_then = self._cpu_seconds

    @staticmethod
    def _works(cpu_seconds: float, now: float, since: float) -> bool:
        return cpu_seconds > 0 and cpu_seconds >= WORKING_CORES * (now - since)


def _moved(before: EngineHealth, after: EngineHealth) -> bool:
    """Cache usage moves during a long prefill, when no token counter does."""
    return (before.prompt_tokens, before.generation_tokens, before.cache_usage) != (
        after.prompt_tokens,
        after.generation_tokens,
        after.cache_usage,
    )


CANARY_TOKENS = 8
PROBE_TOKENS = 1
GLANCE_SECONDS = 0.25
"""Between two looks at a ready replica's processes, which cost next to nothing."""
KILL_SECONDS = 5.0
"""For the kernel to end a killed group."""


class ReplicaFailed(Exception):
    """The replica is of no use any more; the message is its reason. `was_stuck` if it hung."""

    def __init__(self, reason: str, *, was_stuck: bool = False) -> None:
        super().__init__(reason)
        self.was_stuck = was_stuck


class ReplicaLifecycle:
    """Sees one replica through, from wherever it stands."""

    def __init__(self, replica: ManagedReplica) -> None:
        self.replica = replica
        self.services = replica.services
        self.timings = replica.services.timings

    async def run(self) -> None:
        """Live from wherever it stands to `stopped` or `failed`; cancelling leaves the engine."""
        try:
            if await self._finishes(self._become_ready()):
                await self._watch()
                while not await self._drain():
                    await self._watch()
            await self._stop()
        except ReplicaFailed as failure:
            self.replica.was_stuck = failure.was_stuck
            await self._fail(str(failure))

    async def _finishes(self, work: Coroutine[None, None, None]) -> bool:
        """Do the work unless told to leave first; tell whether it was done."""
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self.replica.leaving.wait())
        try:
            await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            return task.done()
        finally:
            for pending in (task, leaving):
                pending.cancel()
            await asyncio.gather(task, leaving, return_exceptions=True)

    async def _become_ready(self) -> None:
        if self.replica.state != "pending":
            await self._load_and_test()
            return
        await self._pause()
        while True:
            # What runs elsewhere takes nothing of this machine.
            async with nullcontext() if self.replica.endpoint else self._loading_permit():
                if await self._start():
                    await self._load_and_test()
                    return
            await asyncio.sleep(self.timings.poll_seconds)

    async def _load_and_test(self) -> None:
        if self.replica.state == "loading":
            await self._load()
        if self.replica.state == "canary":
            await self._run_canaries()

    def _loading_permit(self) -> AbstractAsyncContextManager[None]:
        loading = self.services.loading
        if loading.is_full:
            self.replica.no_room = ""
            self.replica.set_state("pending", "waits for another engine to load")
        return loading.permit()

    async def _pause(self) -> None:
        if self.replica.pause_seconds:
            self.replica.set_state("pending", f"starts again in {self.replica.pause_seconds:.0f} s")
            await asyncio.sleep(self.replica.pause_seconds)

    async def _start(self) -> bool:
        """Start the engine; False while there is no room for it."""
        replica = self.replica
        replica.started_at = datetime.now(UTC)
        try:
            if not replica.endpoint:
                await self._launch()
        except NoRoom as error:
            replica.is_placed, replica.devices, replica.no_room = False, (), str(error)
            reasons = filter(None, (replica.no_room, replica.rollout_reason))
            replica.set_state("pending", reason="; ".join(reasons))
            return False
        except StartRefused as error:
            replica.was_refused = True
            raise ReplicaFailed(str(error)) from error
        except (LaunchError, WeightsUnreadable) as error:
            raise ReplicaFailed(str(error)) from error
        replica.no_room = ""
        replica.set_state("loading", "starting")
        return True

    async def _launch(self) -> None:
        """Start the engine; the intent is on disk before it, its handle as soon as the disk takes
        it after it: until then the launcher finds it by its id. Raises LaunchError, NoRoom and
        StartRefused."""
        replica = self.replica
        wanted = replica.deployment
        await self.services.place(replica)
        replica.weights_digest = await asyncio.to_thread(
            check_weights, wanted.weights, wanted.weights_digest
        )
        launch = await asyncio.to_thread(
            replica.engine.launch, replica.deployment, port=ENGINE_PORT
        )
        if launch is not None:
            replica.text_guard = launch.text_guard
            await self.services.check_command(wanted, launch)
            devices = device_environment(replica.devices)
            launch = replace(launch, environment={**launch.environment, **devices})
            if not await self.services.saved(replica):
                raise LaunchError("the disk does not take the fleet's state")
            replica.handle = await self.services.launcher.start(replica.launch_request(launch))
            self.services.save()

    async def _load(self) -> None:
        begun = time.monotonic()
        stage = "starting"
        while not await self._probe().is_up():
            seconds = time.monotonic() - begun
            self._raise_if_gone()
            if seconds >= self.timings.load_seconds:
                raise ReplicaFailed(f"did not load within {seconds:.0f} s; last: {stage}")
            lines = self.replica.log_file.new_lines()
            stage = last_stage(lines, self.replica.engine.stage) or stage
            self.replica.set_state("loading", f"{stage} ({seconds:.0f} s)")
            await asyncio.sleep(min(0.5, self.timings.poll_seconds))
        self.replica.load_seconds = time.monotonic() - begun
        self.replica.set_state("canary", "a first answer")

    async def _run_canaries(self) -> None:
        """Have real work done before any customer's request comes here."""
        try:
            await self._generate(CANARY_TOKENS, self.timings.canary_seconds)
            await self._supervise()
        except EngineUnresponsive as error:
            self._raise_if_gone()
            raise ReplicaFailed(f"canary: {error}") from error
        await self._measure_template()
        await self._read_kv_capacity()
        self.replica.set_state("ready")

    async def _measure_template(self) -> None:
        """Learn what its chat template adds to a prompt; of one that can't be asked, nothing is
        known."""
        replica, deployment = self.replica, self.replica.deployment
        if deployment.task == "embed" or "count" not in replica.record.capabilities:
            return
        probe = self._probe(self.timings.canary_seconds)
        replica.template_tokens = await template_tokens(probe, deployment.served_name)

    async def _read_kv_capacity(self) -> None:
        """Learn how many tokens the engine's KV cache holds. A text to embed needs its room only
        while it is read, so nothing is said of that."""
        if self.replica.deployment.task != "embed":
            self.replica.kv_capacity_tokens = await self._probe().kv_capacity_tokens()

    async def _watch(self) -> None:
        """Look at a ready replica until it is told to leave. Raises ReplicaFailed."""
        self.replica.ready_since = time.monotonic()
        pulse = ProgressMonitor(
            stuck_seconds=self.timings.stuck_seconds,
            idle_probe_seconds=self.timings.idle_probe_seconds,
            now=time.monotonic(),
        )
        while not await self._drains_within(self.timings.poll_seconds):
            self._raise_if_gone()
            self.replica.log_file.trim()
            await self._observe(pulse)
            trouble = pulse.problem(time.monotonic())
            if trouble is not None:
                raise ReplicaFailed(trouble, was_stuck=True)
            if pulse.wants_probe(time.monotonic()):
                await self._test(pulse)

    async def _supervise(self) -> None:
        """Put every part that requests may use to work once: some compile at their first use, and
        the engine stands meanwhile. What others run has served before, and may not know each field.
        Raises EngineUnresponsive."""
        if self.replica.endpoint:
            return
        deployment, probe = self.replica.deployment, self._probe(self.timings.canary_seconds)
        capabilities = self.replica.engine.capabilities(deployment)
        for exercise in exercises(capabilities, deployment.served_name):
            self.replica.record_probe(await probe.exercise(exercise))

    async def _observe(self, pulse: ProgressMonitor) -> None:
        pulse.record_cpu(self._cpu_seconds)
        try:
            if await self._probe().reports_dead():
                raise ReplicaFailed("the engine reports that it is dead")
            vitals = await self._probe().health()
        except EngineUnresponsive as error:
            log.warning("replica_silent", replica_id=self.replica.replica_id, error=str(error))
            return
        if vitals is None:
            pulse.record_response(time.monotonic())
        else:
            self.replica.record_health(vitals)
            pulse.record_health(vitals, time.monotonic())

    async def _test(self, pulse: ProgressMonitor) -> None:
        """Give an idle replica some work: one that does none, for us or others, is stuck."""
        begun, used = time.monotonic(), self._cpu_seconds
        try:
            await self._generate(PROBE_TOKENS, self.timings.stuck_seconds)
        except EngineUnresponsive as error:
            self._raise_if_gone()
            await self._observe(pulse)
            is_working = pulse.excuses(begun, self._cpu_seconds - used, time.monotonic())
            # Behind a burst of others' requests the probe may wait its turn for long.
            if pulse.token_at < begun and not is_working:
                raise ReplicaFailed(f"idle probe: {error}", was_stuck=True) from error
        else:
            pulse.record_token(time.monotonic())

    async def _drain(self) -> bool:
        """Wait for running requests to finish, up to the limit; False when it is called back."""
        self.replica.set_state("draining")
        begun = time.monotonic()
        await asyncio.sleep(self.timings.drain_grace_seconds)
        while self.replica.is_leaving:
            is_late = time.monotonic() >= begun + self.replica.drain_seconds
            is_done = is_late or not await self._has_work()
            if is_done and self.replica.is_leaving:
                return True
            await asyncio.sleep(min(0.5, self.timings.poll_seconds))
        self.replica.set_state("ready")
        return False

    async def _has_work(self) -> bool:
        if self._is_gone:
            return False
        try:
            vitals = await self._probe().health()
        except EngineUnresponsive:
            return True
        if vitals is None:
            return False
        self.replica.record_health(vitals)
        return not vitals.is_idle

    async def _stop(self) -> None:
        self.replica.is_ending = True
        self.replica.end(at_once=False)
        limit = time.monotonic() + self.timings.term_seconds
        while time.monotonic() < limit:
            if self.replica.handle is None or self._is_gone:
                break
            await asyncio.sleep(0.05)
        await self._kill()
        self._end("stopped")

    async def _fail(self, reason: str) -> None:
        """Kill it whatever comes of saying so, which is in the same moment, so that gateways turn
        away at once; then see it gone."""
        log.error("replica_failed", replica_id=self.replica.replica_id, reason=reason)
        self.replica.end(at_once=True)
        self._end("failed", reason)
        await self._kill()
        self.services.save()

    async def _kill(self) -> None:
        """Kill all its processes, orphans included, and see them gone."""
        limit = time.monotonic() + KILL_SECONDS
        while self.replica.is_left and time.monotonic() < limit:
            self.replica.end(at_once=True)
            await asyncio.sleep(0.05)
        if self.replica.is_left:
            log.error("replica_survives", replica_id=self.replica.replica_id)

    def _end(self, state: State, reason: str = "") -> None:
        self.replica.ended_at = time.monotonic()
        self.replica.set_state(state, reason=reason)

    @property
    def _is_gone(self) -> bool:
        seen = self.replica.observe()
        return seen is not None and not seen.is_alive

    @property
    def _cpu_seconds(self) -> float:
        seen = self.replica.observe()
        return 0.0 if seen is None else seen.cpu_seconds

    def _raise_if_gone(self) -> None:
        seen = self.replica.observe()
        if seen is not None and not seen.is_alive:
            said = self.replica.log_file.last_error()
            if seen.loss:
                raise ReplicaFailed(seen.loss + (f": {said}" if said else ""))
            raise ReplicaFailed(f"the engine process ended: {said or 'no error in its log'}")

    def _probe(self, timeout_seconds: float | None = None) -> EngineProbe:
        seconds = timeout_seconds or self.timings.answer_seconds
        return EngineProbe(
            self.services.session,
            self.replica.url,
            timeout_seconds=seconds,
            token=self.replica.fleet_token,
        )

    async def _generate(self, tokens_max: int, timeout_seconds: float) -> None:
        """Have the work done that the deployment is for. Raises EngineUnresponsive."""
        deployment, probe = self.replica.deployment, self._probe(timeout_seconds)
        if deployment.task == "embed":
            done = await probe.embed(deployment.served_name)
        else:
            done = await probe.generate(deployment.served_name, tokens_max=tokens_max)
        self.replica.record_probe(done)

    async def _drains_within(self, seconds: float) -> bool:
        """Tell whether it is told to leave meanwhile; False at once if its processes end."""
        limit = time.monotonic() + seconds
        while (left := limit - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, GLANCE_SECONDS)):
                    await self.replica.leaving.wait()
                return True
            if self._is_gone:
                break
        return False
