"""The attempts at an answer: each is one slot, one call of its replica and one relay of what it
says. Where a replica fails before the client was told anything, a second one is asked, within a
budget.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from serving.contract.usage import Outcome, UsageEvent
from serving.engine.errors import (
    TEXT_BYTES_MAX,
    EngineError,
    InvalidEngineResponse,
    ReplicaOverloaded,
    ReplicaUnreachable,
    RequestRejected,
    error_of,
)
from serving.engine.events import NO_TOKENS, TokenUsage
from serving.engine.http_client import ReplicaClient, ReplicaResponse
from serving.engine.request import EngineHttpRequest, engine_headers, write
from serving.gateway.admission import Admission, deployment_of, slot_of
from serving.gateway.cancel_scope import CancelScope
from serving.gateway.count_tokens import PromptCounts
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.http.response import HttpResponse
from serving.gateway.idempotency.execution import IdempotentExecution
from serving.gateway.metrics import GatewayMetrics
from serving.gateway.relay import LINGER_SECONDS, DisconnectDrain, Relay
from serving.gateway.render_offload import RenderOffload
from serving.pool.pool import Slot
from serving.pool.retry_budget import OrganizationRetryBudgets
from serving.telemetry import RequestTrace
from serving.usage.journal import Journal
from serving.usage.meter import MeterRecord, RequestTimings, make_event

ATTEMPTS_MAX = 2
ENGINE_SILENT = frozenset({"first_byte", "gap"})

Hedge = Callable[["AttemptRunner", Slot], Awaitable[None]]
"""Works on an urgent request on two replicas where the first lets it wait."""


@dataclass(frozen=True, slots=True)
class GatewayServices:
    """What all requests of a gateway work with."""

    client: ReplicaClient
    render_offload: RenderOffload
    journal: Journal
    metrics: GatewayMetrics
    retries: OrganizationRetryBudgets
    disconnect_drain: DisconnectDrain
    prompt_counts: PromptCounts
    hedge: Hedge


class AttemptContext(msgspec.Struct, frozen=True):
    """What every attempt at one request works with; `observe_gaps` hears the times between chunks.
    `trace` is there where spans are exported, `traceparent` what the engine is told else."""

    client: ReplicaClient
    render_offload: RenderOffload
    response: HttpResponse
    cancel_scope: CancelScope
    inference: InferenceRequest
    admission: Admission
    observe_gaps: Callable[[list[float]], None]
    trace: RequestTrace | None = None
    traceparent: str | None = None


class AttemptRunner:
    """Works on one admitted request until it is answered."""

    def __init__(
        self,
        services: GatewayServices,
        response: HttpResponse,
        inference: InferenceRequest,
        admission: Admission,
        record: MeterRecord,
        *,
        execution: IdempotentExecution | None = None,
        trace: RequestTrace | None = None,
        traceparent: str | None = None,
    ) -> None:
        self.services = services
        self.response = response
        self.inference = inference
        self.admission = admission
        self.record = record
        self.cancel_scope = CancelScope(admission.deployment.timeouts.total_seconds)
        self.context = AttemptContext(
            services.client,
            services.render_offload,
            response,
            self.cancel_scope,
            inference,
            admission,
            services.metrics.variants[inference.model.variant_id].gap.observe_all,
            trace,
            traceparent,
        )
        self.attempt: ReplicaAttempt | None = None
        """The one that counts."""
        self.attempts: list[ReplicaAttempt] = []
        """All that had a slot."""
        self.replica_id: str | None = None
        self.is_unmeasured = False
        """Whether the client left before the engine said what it took: of its rate limits it took
        what was expected, since nobody knows what was made."""
        self.event: UsageEvent | None = None
        self._execution = execution
        self._queue_seconds = 0.0
        self._input_tokens_max = admission.input_tokens_max

    async def run(self) -> None:
        """Have the request answered, but for the end that its usage comes before. Raises
        RequestCancelled, PoolError, EngineError or ClientTooSlow."""
        while True:
            try:
                with self.cancel_scope:
                    await self._attempt()
            except RequestRejected:
                raise
            except EngineError:
                if not self._may_retry():
                    raise
                # The next one may wait for its turn first.
                self.cancel_scope.clear_deadline()
            else:
                # What broke replicas was served by another: it was their fault.
                for attempt in self.attempts:
                    if attempt.has_failed:
                        attempt.slot.confirm_replica_fault()
                return

    @property
    def outcome(self) -> Outcome:
        """How a request ended that went well: for its client, or for the count of its tokens."""
        return "client_cancelled" if self.cancel_scope.is_detached else "completed"

    def client_disconnected(self) -> None:
        """Stop the work, unless others want it, or an engine has yet to say what it took and
        nobody waits for its slot."""
        execution = self._execution
        if execution is not None and execution.recording.outlives(self.client_disconnected):
            return
        is_unmeasured = self.relay is not None and not self.relay.has_usage
        if is_unmeasured and self.services.disconnect_drain.enter(self.admission.slot_request):
            self.cancel_scope.detach(LINGER_SECONDS)
            for attempt in self.attempts:
                slot = attempt.slot
                slot.pool.queue.set_unwanted(slot.service, self.cancel_scope.client_gone)
        else:
            self.cancel_scope.client_gone()

    @property
    def relay(self) -> "Relay | None":
        """The relay of the attempt that counts, once it has begun."""
        return None if self.attempt is None else self.attempt.relay

    @property
    def timings(self) -> RequestTimings:
        """How long it took until now."""
        began, relay = self.response.started_at, self.relay
        first = None if relay is None else relay.first_token_at
        return RequestTimings(
            queue_seconds=self._queue_seconds,
            ttft_seconds=None if first is None else first - began,
            total_seconds=time.perf_counter() - began,
        )

    async def usage(self, outcome: Outcome) -> TokenUsage:
        """Return what the engine says it took, and at most what was asked. Where the client left
        before it said anything, its tokenizer says what the prompt is. Raises
        InvalidEngineResponse.
        """
        attempt, metrics = self.attempt, self.services.metrics
        if attempt is None or attempt.relay is None:
            return NO_TOKENS
        stated = attempt.relay.tokens
        if outcome == "client_cancelled" and not attempt.has_usage:
            self.is_unmeasured = True
            counted = await attempt.count_prompt(self.services.prompt_counts)
            if counted is None:
                metrics.unmetered += 1
                return NO_TOKENS
            stated = counted
        usage = self.inference.bounded_usage(stated, self._input_tokens_max)
        if usage is not stated:
            metrics.overstated += 1
        return usage

    def lost_event(self) -> UsageEvent:
        """Return what is booked of a request whose gateway died, or could not record it."""
        return make_event(self.record, outcome="gateway_lost", replica_id=self.replica_id)

    async def _attempt(self) -> None:
        """Have a replica work on it, and a second one too where it lets an urgent request wait."""
        tried = [str(one.replica_id) for one in self.attempts]
        slot = slot_of(self.admission.candidates, self.admission.slot_request, tried)
        if slot.request.tier == "priority":
            await self.services.hedge(self, slot)
            return
        self.attempt = ReplicaAttempt(self.context, slot)
        await self.attempt.run(self.start, self.record_first_token)

    def start(self, attempt: "ReplicaAttempt") -> None:
        """Hear that an attempt has its slot."""
        self.attempts.append(attempt)
        self._queue_seconds += attempt.queue_seconds
        self.choose(attempt)

    def choose(self, attempt: "ReplicaAttempt") -> None:
        """It is this attempt that counts. From here on the request leaves an event, even if this
        process dies."""
        self.attempt, self.replica_id = attempt, attempt.replica_id
        if attempt.deployment_id != self.record.deployment_id:
            self.record = msgspec.structs.replace(self.record, deployment_id=attempt.deployment_id)
        self.services.journal.open(
            self.record.event_id, self.lost_event, self.admission.reservation.parts
        )

    def record_first_token(self, attempt: "ReplicaAttempt") -> None:
        """The engine begins: where it says how long the prompt is, no more is reserved than for
        that, nor charged. What several prompts take together is not known before their end, and an
        answer that is over already is settled at once."""
        if attempt.relay is None or attempt.relay.is_done:
            return
        counted = attempt.counted()
        if counted is None or self.inference.engine_request.prompts != 1:
            return
        tokens = counted.input
        if 0 < tokens < self._input_tokens_max:
            self._input_tokens_max = tokens
            worst = self.inference.worst_case_nanos(self.record.schedule, tokens)
            self.admission.reservation.shrink(worst)

    def _may_retry(self) -> bool:
        exhausted = len(self.attempts) >= ATTEMPTS_MAX or self.response.has_started
        if exhausted or self.cancel_scope.is_detached:
            return False
        if not self.services.retries.take(self.record.organization_id):
            return False
        self.services.metrics.retries += 1
        return True


Heard = Callable[["ReplicaAttempt"], None]


def _nobody(one: "ReplicaAttempt") -> None:
    """Hear nothing."""


class ReplicaAttempt:
    """One of them. Who runs it hears of it, and is not kept by it: a request that leaves no cycle
    of objects leaves the collector nothing to find."""

    def __init__(self, context: AttemptContext, slot: Slot) -> None:
        self.slot = slot
        self.replica_id: str | None = None
        self.deployment_id = ""
        """Of the replica, once there is one."""
        self.relay: Relay | None = None
        self.queue_seconds = 0.0
        self.has_failed = False
        """Whether the replica failed it."""
        self.lost_hedge = False
        """Whether another attempt at the same request goes on, and nobody wants this one."""
        self._context = context

    @property
    def has_usage(self) -> bool:
        """Whether the engine has said anything of what it took."""
        return self.relay is not None and self.relay.has_usage

    async def count_prompt(self, prompt_counts: PromptCounts) -> TokenUsage | None:
        """Have the replica's tokenizer count the prompt of which its engine said nothing. The slot
        has ended."""
        context, record = self._context, self.slot.replica.record
        deployment = deployment_of(context.admission.candidates, self.slot)
        tokens = await prompt_counts.count(
            *(self.slot.request.tenant_id, record, context.inference.engine_request),
            served_name=deployment.served_name,
            request_id=context.response.request_id,
            connect_seconds=deployment.timeouts.connect_seconds,
        )
        return None if tokens is None else TokenUsage(input=tokens)

    def counted(self) -> TokenUsage | None:
        """Return what the engine has counted so far, if it has."""
        if self.relay is None or not self.relay.has_usage:
            return None
        try:
            context = self._context
            return context.inference.bounded_usage(
                self.relay.tokens, context.admission.input_tokens_max
            )
        except InvalidEngineResponse:
            return None

    async def run(self, on_start: Heard, on_first_token: Heard = _nobody) -> None:
        """Wait for the slot, and relay the answer to its end. Raises PoolError, EngineError or
        ClientTooSlow.

        `on_start` is called once it has its slot, `on_first_token` as the name says, and may raise:
        then nothing of it reaches the client.
        """
        queued_at = time.perf_counter()
        async with self.slot as slot:
            self.queue_seconds = time.perf_counter() - queued_at
            record = slot.replica.record
            self.replica_id, self.deployment_id = record.replica_id, record.deployment_id
            on_start(self)
            slot.service.progress = self.counted
            try:
                with slot.unanswered:
                    await self._work(on_first_token)
            except (RequestRejected, ReplicaOverloaded):
                slot.usage_known(NO_TOKENS)
                raise
            except EngineError as error:
                self.has_failed = True
                slot.usage_known(NO_TOKENS)
                slot.replica_failed(is_at_fault=isinstance(error, ReplicaUnreachable))
                raise
            except asyncio.CancelledError:
                self._note_cancelled()
                raise
            slot.usage_known(self.counted())
            slot.token_received()

    def _note_cancelled(self) -> None:
        if self.lost_hedge:
            self.slot.hedge_lost()
            return
        self.slot.usage_known(self.counted())
        if self._context.cancel_scope.reason in ENGINE_SILENT:
            self.slot.replica_failed()

    async def _work(self, on_first_token: Heard) -> None:
        context, record = self._context, self.slot.replica.record
        deployment = deployment_of(context.admission.candidates, self.slot)
        timeouts, request_id = deployment.timeouts, context.response.request_id
        request = write(
            context.inference.engine_request,
            served_name=deployment.served_name,
            capabilities=record.capabilities,
            cache_salt=context.admission.cache_salt,
            request_id=request_id,
            text_guard=record.text_guard,
        )
        self.relay = self._new_relay(request, timeouts.gap_seconds)
        # What is not streamed sends its first byte at its end: only the total bounds it.
        if request.is_streamed:
            context.cancel_scope.set_deadline("first_byte", timeouts.first_byte_seconds)
        if context.trace is None:
            await self._call(request, timeouts.connect_seconds, context.traceparent, on_first_token)
            return
        with context.trace.engine_call() as traceparent:
            await self._call(request, timeouts.connect_seconds, traceparent, on_first_token)

    async def _call(
        self,
        request: EngineHttpRequest,
        connect_seconds: float,
        traceparent: str | None,
        on_first_token: Heard,
    ) -> None:
        context, relay = self._context, self.relay
        if relay is None:
            raise RuntimeError("a relay reads the answer")
        record = self.slot.replica.record
        async with context.client.call(
            record.url.rstrip("/") + request.path,
            request.body,
            engine_headers(record.token, context.response.request_id, traceparent),
            connect_seconds=connect_seconds,
        ) as answer:
            status = await answer.status()
            if status != 200:
                raise error_of(status, await _words(answer))
            first_token = partial(self._first_token, on_first_token)
            await relay.run(answer, first_token, self.slot.vacate)

    def _new_relay(self, request: EngineHttpRequest, gap_seconds: float) -> Relay:
        context = self._context
        return Relay(
            request.parser,
            context.inference.dialect.renderer(context.inference, context.response.request_id),
            context.response,
            context.cancel_scope,
            holder=context.admission.slot_request,
            render_offload=context.render_offload,
            inline_bytes_max=context.inference.inline_bytes_max,
            gap_seconds=gap_seconds,
            observe_gaps=context.observe_gaps,
        )

    def _first_token(self, on_first_token: Heard) -> None:
        self.slot.token_received()
        on_first_token(self)


async def _words(answer: ReplicaResponse) -> bytes:
    """Return the beginning of what an engine says besides an answer."""
    words = b""
    while len(words) < TEXT_BYTES_MAX and (data := await answer.read()):
        words += data
    return words
