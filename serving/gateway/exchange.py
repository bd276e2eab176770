"""One request from its hold to its usage event: queue, route, relay, meter, end.

Whatever happens in between, the hold ends in exactly one charge or void, and a request that
reached an engine leaves exactly one event, durable before the client sees the end.
"""

import time
from dataclasses import dataclass

import aiohttp

from serving.contract.usage import Outcome, UsageEvent
from serving.engine.client import (
    EngineError,
    EngineRefusal,
    open_call,
)
from serving.gateway.admission import Admitted, model_unavailable, usage_unavailable
from serving.gateway.assemble import Assembly
from serving.gateway.client_stream import ClientStream
from serving.gateway.conversation import Conversation
from serving.gateway.errors import ApiError, TimedOut, Unavailable
from serving.gateway.interrupts import Interrupted, Interrupts
from serving.gateway.job import Job
from serving.gateway.metrics import Metrics
from serving.gateway.refusals import translate
from serving.gateway.relay import Relay, StreamRelay
from serving.gateway.sse import BrokenStream
from serving.gateway.tally import Tally
from serving.gateway.unstreamed import UnstreamedRelay
from serving.pool.pool import NoReplica, PoolError
from serving.pool.replica import Replica
from serving.pool.retries import RetryBudget
from serving.telemetry import Trace, Tracing
from serving.usage.journal import Journal
from serving.usage.meter import NO_TOKENS, Metered, Timings, make_event, price_of
from serving.usage.writer import JournalUnavailable

RETRYABLE = (EngineError, BrokenStream, aiohttp.ClientError, OSError)
TRIES_MAX = 2


@dataclass(frozen=True, slots=True)
class Means:
    """What every exchange of a gateway works with."""

    session: aiohttp.ClientSession
    journal: Journal
    metrics: Metrics
    retries: RetryBudget
    tracing: Tracing


class Exchange:
    """The life of one admitted request."""

    def __init__(
        self,
        means: Means,
        conversation: Conversation,
        *,
        job: Job,
        admitted: Admitted,
        metered: Metered,
        trace: Trace,
    ) -> None:
        self._means = means
        self._conversation = conversation
        self._job = job
        self._admitted = admitted
        self._metered = metered
        self._trace = trace
        self._interrupts = Interrupts(admitted.deployment.timeouts.total_seconds)
        self._relay = self._new_relay()
        self._replica_id: str | None = None
        self._queue_seconds = 0.0
        self.charged_nanos = 0
        self.event: UsageEvent | None = None

    async def run(self) -> None:
        """Serve the request to its end. Raises ApiError when the client must be told of one."""
        outcome: Outcome = "engine_failed"
        error: ApiError | None = None
        try:
            with self._conversation.watched(self._interrupts.client_gone):
                await self._try_replicas()
            outcome = "completed"
        except Interrupted as interrupted:
            outcome, error = self._explain(interrupted)
        except EngineRefusal as refusal:
            outcome, error = "refused_by_engine", translate(refusal, self._job)
        except PoolError as full:
            error = _no_slot(full)
        except RETRYABLE:
            error = _engine_failed()
        finally:
            await self._end(outcome)
        if error is not None:
            raise error
        if outcome == "completed":
            await self._send_tail()

    async def _try_replicas(self) -> None:
        tried: list[str] = []
        while True:
            try:
                with self._interrupts:
                    await self._try_one(tried)
                return
            except EngineRefusal:
                raise
            except RETRYABLE:
                exhausted = len(tried) >= TRIES_MAX or self._conversation.has_begun
                if exhausted or not self._means.retries.take():
                    raise
                self._means.metrics.retries.inc()
                self._relay = self._new_relay()

    async def _try_one(self, tried: list[str]) -> None:
        queued_at = time.perf_counter()
        async with self._admitted.pool.slot(self._metered.organization_id, tried) as replica:
            self._queue_seconds += time.perf_counter() - queued_at
            tried.append(replica.record.replica_id)
            self._note_start(replica)
            try:
                await self._work(replica)
            except EngineRefusal:
                replica.note_success()
                raise
            except RETRYABLE:
                replica.note_failure(time.monotonic())
                raise
            replica.note_success()

    async def _work(self, replica: Replica) -> None:
        timeouts = self._admitted.deployment.timeouts
        # What is not streamed sends its first byte at its end: only the total bounds it.
        if self._job.engine_streams:
            self._interrupts.expect("first_byte", timeouts.first_byte_seconds)
        url = replica.record.url.rstrip("/") + self._job.endpoint.path
        with self._trace.engine_call() as traceparent:
            async with open_call(
                self._means.session,
                url,
                self._job.body,
                self._engine_headers(traceparent),
                connect_seconds=timeouts.connect_seconds,
            ) as content:
                await self._relay.run(content)

    def _engine_headers(self, traceparent: str | None) -> dict[str, str]:
        """Return all that an engine hears besides the body: nothing of the client's headers."""
        headers = {"content-type": "application/json"}
        # vLLM makes its own ids from this one, so that its log lines can be found by ours.
        headers["x-request-id"] = self._conversation.request_id
        if traceparent is not None:
            headers["traceparent"] = traceparent
        return headers

    def _new_relay(self) -> Relay:
        job, conversation = self._job, self._conversation
        if not job.engine_streams:
            return UnstreamedRelay(job, conversation.request_id)
        outlet = (
            ClientStream(job, conversation, self._interrupts, self._means.metrics)
            if job.streamed
            else Assembly(job, conversation.request_id)
        )
        return StreamRelay(
            outlet,
            Tally(choices=job.choices, prompts=job.prompts),
            self._interrupts,
            gap_seconds=self._admitted.deployment.timeouts.gap_seconds,
        )

    def _note_start(self, replica: Replica) -> None:
        """From here on the request leaves an event, even if this process dies."""
        self._replica_id = replica.record.replica_id
        lost = make_event(self._metered, outcome="gateway_lost", replica_id=self._replica_id)
        self._means.journal.open(lost)

    async def _end(self, outcome: Outcome) -> None:
        """Charge or void, and make the event durable. Raises ApiError when the disk is full."""
        hold = self._admitted.hold
        if self._replica_id is None:
            hold.void()
            return
        timings = self._timings()
        try:
            tokens = self._relay.tokens
        except BrokenStream:
            # An engine that cannot count is at fault, whoever ended the request.
            tokens, outcome = NO_TOKENS, "engine_failed"
        self.charged_nanos = price_of(self._metered, tokens, outcome)
        if self.charged_nanos > hold.nanos:
            self._means.metrics.overruns.inc()
        event = make_event(
            self._metered,
            outcome=outcome,
            replica_id=self._replica_id,
            tokens=tokens,
            timings=timings,
            charges=hold.charge(self.charged_nanos),
        )
        try:
            await self._means.journal.commit(event)
        except JournalUnavailable:
            hold.revoke()
            lost = make_event(self._metered, outcome="gateway_lost", replica_id=self._replica_id)
            self._means.journal.commit_later(lost)
            raise usage_unavailable() from None
        finally:
            self._means.metrics.note_end(event)
            self.event = event

    def _timings(self) -> Timings:
        began, first = self._conversation.started_at, self._relay.first_token_at
        return Timings(
            queue_seconds=self._queue_seconds,
            ttft_seconds=None if first is None else first - began,
            total_seconds=time.perf_counter() - began,
        )

    async def _send_tail(self) -> None:
        """Tell the client the end: its usage is durable now."""
        if self._job.streamed:
            await self._conversation.finish(self._relay.tail)
            return
        cost = (b"x-penstock-cost-nanos", str(self.charged_nanos).encode())
        json = (b"content-type", b"application/json")
        await self._conversation.reply(200, self._relay.tail, [json, cost])

    def _explain(self, interrupted: Interrupted) -> tuple[Outcome, ApiError | None]:
        if interrupted.reason in ("client_gone", "client_stalled"):
            return "client_cancelled", None
        return "timed_out", TimedOut("The model took too long to answer.", code="timeout")


def _no_slot(full: PoolError) -> ApiError:
    if isinstance(full, NoReplica):
        return model_unavailable()
    return Unavailable("The model is busy. Please try again.", code="server_is_overloaded")


def _engine_failed() -> ApiError:
    return Unavailable("The model failed to answer. Please try again.", code="model_unavailable")
