"""One request from its hold to its usage event: queue, route, relay, meter, end.

Whatever happens in between, the hold ends in exactly one charge or void, and a request that
reached an engine leaves exactly one event, durable before the client sees the end.
"""

import time
from dataclasses import dataclass

import msgspec

from serving.contract.usage import Outcome, UsageEvent
from serving.engine.errors import (
    EngineError,
    InvalidEngineResponse,
    ReplicaOverloaded,
    RequestRejected,
)
from serving.engine.events import NO_TOKENS, TokenUsage
from serving.engine.http_client import ReplicaClient
from serving.gateway.admission import Admission, slot_of
from serving.gateway.attempt import AttemptContext, ReplicaAttempt
from serving.gateway.cancel_scope import CancelScope, RequestCancelled
from serving.gateway.conversation import Conversation
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.error_mapping import (
    busy,
    engine_failed,
    gateway_restarting,
    no_slot,
    usage_unavailable,
)
from serving.gateway.errors import ApiError, DeadlineExceeded, Headers, ServiceUnavailable
from serving.gateway.hedging import HedgedAttempt, may_hedge
from serving.gateway.http.write_buffer import ClientTooSlow
from serving.gateway.idempotency.execution import IdempotentExecution
from serving.gateway.metrics import GatewayMetrics
from serving.gateway.relay import LINGER_SECONDS, DisconnectDrain, Relay
from serving.gateway.render_offload import RenderOffload
from serving.limits.limiter import RateReservation
from serving.pool.retry_budget import OrganizationRetryBudgets
from serving.pool.slot_request import PoolError
from serving.telemetry import RequestTrace, RequestTracing
from serving.usage.journal import Journal
from serving.usage.journal_writer import JournalUnavailable
from serving.usage.meter import MeterRecord, RequestTimings, make_event, price_of

TRIES_MAX = 2


@dataclass(frozen=True, slots=True)
class GatewayServices:
    """What every exchange of a gateway works with."""

    client: ReplicaClient
    finishing: RenderOffload
    journal: Journal
    metrics: GatewayMetrics
    retries: OrganizationRetryBudgets
    tracing: RequestTracing
    lingering: DisconnectDrain


class Exchange:
    """The life of one admitted request."""

    def __init__(
        self,
        means: GatewayServices,
        conversation: Conversation,
        *,
        job: InferenceRequest,
        admitted: Admission,
        metered: MeterRecord,
        trace: RequestTrace,
        turn: IdempotentExecution | None = None,
    ) -> None:
        self._means = means
        self._conversation = conversation
        self._job = job
        self._admitted = admitted
        self._metered = metered
        self.reserved: RateReservation | None = None
        """What it took of its caller's rate limits, if anything limits it."""
        self._turn = turn
        """Of a request with an idempotency key: who keeps its answer."""
        self._interrupts = CancelScope(admitted.deployment.timeouts.total_seconds)
        self._asked = AttemptContext(
            *(means.client, means.finishing, conversation, self._interrupts),
            *(job, admitted, trace),
            means.metrics.variants[job.model.variant_id].gap.observe,
        )
        self._try: ReplicaAttempt | None = None
        """The one that counts."""
        self._tries: list[ReplicaAttempt] = []
        """All that had a slot."""
        self._replica_id: str | None = None
        self._queue_seconds = 0.0
        self._input_tokens_max = admitted.input_tokens_max
        self._is_unmeasured = False
        """Whether the client left before the engine said what it took: of its rate limits it took
        what was expected, since nobody knows what was made."""
        self.charged_nanos = 0
        self.event: UsageEvent | None = None

    async def run(self) -> None:
        """Serve the request to its end. Raises ApiError when the client must be told of one."""
        outcome: Outcome = "engine_failed"
        try:
            self._conversation.watch(self._client_left)
            await self._try_replicas()
            outcome = "client_cancelled" if self._interrupts.is_abandoned else "completed"
        except RequestCancelled as interrupted:
            outcome = "client_cancelled" if interrupted.reason == "client_gone" else "timed_out"
            if interrupted.reason == "gateway_ends":
                raise gateway_restarting() from None
            if interrupted.reason != "client_gone":
                raise DeadlineExceeded(
                    "The model took too long to answer.", code="timeout"
                ) from None
        except ClientTooSlow:
            outcome = "client_cancelled"
            self._conversation.cut()
        except RequestRejected as refusal:
            outcome = "refused_by_engine"
            raise self._job.dialect.refusal(refusal, self._job) from None
        except PoolError as full:
            raise no_slot(full) from None
        except ReplicaOverloaded:
            raise busy() from None
        except EngineError:
            raise engine_failed() from None
        finally:
            self._unwatch()
            await self._end(outcome)
        if outcome == "completed":
            await self._send_tail()

    def end_now(self) -> None:
        """Cut it short: the gateway ends. The client is told, and pays nothing."""
        self._interrupts.gateway_ends()

    @property
    def _relay(self) -> Relay | None:
        """The relay of the try that counts, once it has begun."""
        return None if self._try is None else self._try.relay

    def _unwatch(self) -> None:
        self._conversation.unwatch()
        if self._turn is not None:
            self._turn.copy.unwatch()

    def _client_left(self) -> None:
        """Stop the work, unless others want it or an engine has yet to say what it took."""
        if self._turn is not None and self._turn.copy.outlives(self._client_left):
            return
        is_unmeasured = self._relay is not None and not self._relay.has_usage
        if is_unmeasured and self._means.lingering.enter(self._metered.organization_id):
            self._interrupts.abandon(LINGER_SECONDS)
        else:
            self._interrupts.client_gone()

    async def _try_replicas(self) -> None:
        while True:
            try:
                with self._interrupts:
                    await self._try_one()
                self._convict()
                return
            except RequestRejected:
                raise
            except EngineError:
                exhausted = len(self._tries) >= TRIES_MAX or self._conversation.has_begun
                if exhausted or self._interrupts.is_abandoned:
                    raise
                if not self._means.retries.take(self._metered.organization_id):
                    raise
                self._means.metrics.retries += 1
                # The next one may wait for its turn first.
                self._interrupts.expect_nothing()

    async def _try_one(self) -> None:
        """Have a replica work on it, and a second one too where it lets an urgent request wait."""
        means, admitted = self._means, self._admitted
        tried = [str(one.replica_id) for one in self._tries]
        slot = slot_of(admitted.places, admitted.slot_request, tried)
        if not may_hedge(slot.request, self._job.work):
            self._try = ReplicaAttempt(self._asked, slot)
            await self._try.run(self._start, self._measure)
            return
        hedge = HedgedAttempt(
            *(self._asked, slot, means.journal, self._metered, means.metrics),
            on_start=self._start,
            on_chosen=self._choose,
            on_first_token=self._measure,
            tries=self._tries,
        )
        self._try = hedge.first
        await hedge.run()

    def _start(self, one: ReplicaAttempt) -> None:
        self._tries.append(one)
        self._queue_seconds += one.queue_seconds
        self._choose(one)

    def _choose(self, one: ReplicaAttempt) -> None:
        """It is this try that counts. From here on the request leaves an event, even if this
        process dies."""
        self._try, self._replica_id = one, one.replica_id
        self._metered = msgspec.structs.replace(self._metered, deployment_id=one.deployment_id)
        held = self._admitted.hold.parts
        self._means.journal.open(self._metered.event_id, self._lost, held)

    def _measure(self, one: ReplicaAttempt) -> None:
        """The engine begins: where it says how long the prompt is, no more is held than for that,
        nor charged. What several prompts take together is not known before their end."""
        counted = one.counted()
        if counted is None or self._job.work.prompts != 1:
            return
        tokens = counted.input
        if 0 < tokens < self._input_tokens_max:
            self._input_tokens_max = tokens
            self._admitted.hold.shrink(self._job.worst_case_nanos(self._metered.schedule, tokens))

    def _convict(self) -> None:
        """What broke replicas was served by another: it was their fault."""
        for one in self._tries:
            if one.is_broken:
                one.slot.confirm_replica_fault()

    def _lost(self) -> UsageEvent:
        return make_event(self._metered, outcome="gateway_lost", replica_id=self._replica_id)

    async def _end(self, outcome: Outcome) -> None:
        """Charge or void, and make the event durable. Raises ApiError when the disk is full."""
        hold = self._admitted.hold
        if self._interrupts.is_abandoned:
            self._means.lingering.leave(self._metered.organization_id)
        if self._replica_id is None:
            hold.void()
            return
        timings = self._timings()
        try:
            tokens = await self._tokens(outcome)
        except InvalidEngineResponse:
            # An engine that cannot count is at fault, whoever ended the request.
            tokens, outcome = NO_TOKENS, "engine_failed"
        if self.reserved is not None:
            self._settle(self.reserved, tokens)
        self.charged_nanos = price_of(self._metered, tokens, outcome)
        error: ApiError | None = None
        if self._turn is not None and outcome == "completed":
            error = await self._keep(self._turn)
        if error is not None:
            outcome, self.charged_nanos = "gateway_lost", 0
        event = make_event(
            self._metered,
            outcome=outcome,
            replica_id=self._replica_id,
            tokens=tokens,
            timings=timings,
            charges=hold.charge(self.charged_nanos),
        )
        try:
            await self._commit(event, self._turn if outcome == "completed" else None)
        except JournalUnavailable:
            hold.revoke()
            self._means.journal.commit_later(self._lost())
            raise usage_unavailable() from None
        finally:
            self._means.metrics.note_end(event)
            self.event = event
        if error is not None:
            raise error

    def _settle(self, reserved: RateReservation, tokens: TokenUsage) -> None:
        """Before the end is told: whoever hears it may send its next request elsewhere."""
        if self._is_unmeasured:
            reserved.keep()
        else:
            fresh = tokens.input - tokens.cached_input
            reserved.settle(input_tokens=fresh, output_tokens=tokens.output)

    async def _commit(self, event: UsageEvent, turn: IdempotentExecution | None) -> None:
        """Make the event durable. Raises JournalUnavailable."""
        if turn is None:
            await self._means.journal.commit(event)
        else:
            await turn.complete(self._means.journal.commit(event, completes_claim=True))

    async def _keep(self, turn: IdempotentExecution) -> ApiError | None:
        """Have the answer kept before it is charged; return what to tell if it was not."""
        if self._relay is None:
            raise RuntimeError("nothing was relayed")
        try:
            await turn.keep(self._headers(), self._relay.tail)
        except ServiceUnavailable as error:
            return error
        return None

    async def _tokens(self, outcome: Outcome) -> TokenUsage:
        """Return what the engine says it took, and at most what was asked. Where the client left
        before it said anything, its tokenizer says what the prompt is. Raises
        InvalidEngineResponse.
        """
        one, metrics = self._try, self._means.metrics
        if one is None or one.relay is None:
            return NO_TOKENS
        stated = one.relay.tokens
        if outcome == "client_cancelled" and not one.has_usage:
            self._is_unmeasured = True
            counted = await one.count_prompt()
            if counted is None:
                metrics.unmetered += 1
                return NO_TOKENS
            stated = counted
        tokens = self._job.bounded(stated, self._input_tokens_max)
        if tokens is not stated:
            metrics.overstated += 1
        return tokens

    def _timings(self) -> RequestTimings:
        began = self._conversation.started_at
        first = None if self._relay is None else self._relay.first_token_at
        return RequestTimings(
            queue_seconds=self._queue_seconds,
            ttft_seconds=None if first is None else first - began,
            total_seconds=time.perf_counter() - began,
        )

    async def _send_tail(self) -> None:
        """Tell the client the end: its usage is durable now."""
        if self._relay is None:
            raise RuntimeError("nothing was relayed")
        if self._turn is not None:
            self._turn.copy.complete(self._headers(), self._relay.tail)
        if self._conversation.has_begun:
            await self._conversation.finish(self._relay.tail)
        else:
            await self._conversation.reply(200, self._relay.tail, self._headers())

    def _headers(self) -> Headers:
        """Return the head of the answer besides our own; a whole one says what it cost."""
        if self._relay is None:
            raise RuntimeError("nothing was relayed")
        if self._conversation.has_begun:
            return self._relay.headers
        cost = (b"x-penstock-cost-nanos", str(self.charged_nanos).encode())
        return [*self._relay.headers, cost]
