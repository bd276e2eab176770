"""The story of a request: authenticate, read, admit, attempt, settle. Start reading here.

Whatever happens in between, a reservation ends in exactly one charge or void, and a request that
reached an engine leaves exactly one event, durable before the client sees the end.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from serving.contract.client_address import Network
from serving.contract.ids import moment_of
from serving.contract.records import ModelRecord
from serving.contract.usage import Outcome, UsageEvent
from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import NO_TOKENS, TokenUsage
from serving.engine.request import Operation
from serving.gateway import cors
from serving.gateway.admission import AdmissionController
from serving.gateway.attempt import AttemptRunner, GatewayServices
from serving.gateway.auth import ApiRequest, Principal, check_permitted
from serving.gateway.dialects.base import Dialect, InferenceDialect, InferenceRequest
from serving.gateway.directory import Directory
from serving.gateway.error_mapping import (
    STEP_ERRORS,
    outcome_of,
    raise_api_error,
    too_many_in_progress,
    usage_unavailable,
)
from serving.gateway.errors import ApiError, Headers, ServiceUnavailable
from serving.gateway.http.request import BodyReservation
from serving.gateway.http.response import HttpResponse
from serving.gateway.http.write_buffer import ClientTooSlow
from serving.gateway.idempotency.execution import IdempotentExecution
from serving.gateway.idempotency.guard import RAW_HEADER, IdempotencyGuard
from serving.gateway.parse_offload import ParseOffload, body_bytes_max
from serving.gateway.rate_limits import RateLimitEnforcer
from serving.gateway.relay import Relay
from serving.limits.limiter import RateReservation
from serving.limits.plans import RateLimitPlan
from serving.pool.overload import SharedCapacity
from serving.telemetry import Attributes, RequestTrace, RequestTracing, valid_traceparent
from serving.usage.journal_writer import JournalUnavailable
from serving.usage.meter import MeterRecord, make_event, price_of

OPERATION_NAMES: dict[Operation, str] = {
    "chat": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
}
"""In the words of OpenTelemetry's GenAI conventions."""
REQUESTS_SHARE = 8
"""Requests in progress that an organization may have for each connection that is left. One alone
keeps at most eight ninths of all connections busy, and so do all that never paid together."""


class InferenceHandler:
    """Answers the routes that generate. `now` is the wall clock, in UTC."""

    def __init__(
        self,
        services: GatewayServices,
        directory: Directory,
        admission: AdmissionController,
        idempotency: IdempotencyGuard,
        *,
        rate_limits: RateLimitEnforcer,
        parse_offload: ParseOffload,
        body_memory: SharedCapacity,
        in_progress: SharedCapacity,
        body_begins_seconds: float,
        tracing: RequestTracing,
        trusted_proxies: Sequence[Network] = (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.services = services
        self.directory = directory
        self.admission = admission
        self.idempotency = idempotency
        self.rate_limits = rate_limits
        self.parse_offload = parse_offload
        self.body_memory = body_memory
        self.in_progress = in_progress
        """Requests with a known key, which keep their connections."""
        self.body_begins_seconds = body_begins_seconds
        self.tracing = tracing
        self.trusted_proxies = trusted_proxies
        self.now = now
        self.running: set[AttemptRunner] = set()

    async def handle(
        self, http: ApiRequest, response: HttpResponse, dialect: InferenceDialect
    ) -> None:
        """Answer one request. Raises ApiError or ClientDisconnected."""
        principal = self.authenticate(http, response)  # 401, 403
        plan = self.rate_limits.plan_of(principal)
        body, inference = await self.read(http, response, principal, dialect, plan=plan)  # 4xx
        rate = await self.reserve_rate(response, principal, inference, plan=plan)  # 429
        try:
            if http.has_header(RAW_HEADER):
                serve = partial(self.serve, http, response, principal, inference, rate=rate)
                await self.idempotency.run_once(http, response, principal, body, serve)
            else:
                await self.serve(http, response, principal, inference, rate=rate)
        finally:
            if rate is not None:
                rate.void()

    def authenticate(self, http: ApiRequest, response: HttpResponse) -> Principal:
        """Return whose key it is, and count the request for its organization. Raises Unauthorized,
        Forbidden, OrganizationSuspended, ServiceUnavailable while keys are unknown, or what
        `too_many_in_progress` returns."""
        principal = self.directory.authenticator.authenticate(
            http.authorization, lambda: http.client_address(self.trusted_proxies), self.now
        )
        http.principal, response.holder = principal, principal.organization
        check_permitted(principal)
        if not self.in_progress.fits(principal.organization, 1):
            raise too_many_in_progress(is_own=self.in_progress.holds(principal.organization))
        self.in_progress.add(principal.organization, 1)
        http.counted_for = principal.organization
        if http.has_origin:
            cors.check_origin(http, response, principal.project.allowed_origins)
        return principal

    async def read(
        self,
        http: ApiRequest,
        response: HttpResponse,
        principal: Principal,
        dialect: Dialect,
        *,
        plan: RateLimitPlan | None,
    ) -> tuple[list[bytes], InferenceRequest]:
        """Return the body and the request that it is. A body that is none counts as a request too.

        Raises RateLimited before the body is read, and ApiError for what is wrong with it.
        """

        def find(name: str) -> ModelRecord:
            model = self.directory.find_model(principal, name, dialect.task)
            http.variant_id = model.variant_id
            return model

        if plan is not None:
            self.rate_limits.check(response, dialect, plan)
        try:
            body = await http.read_body(
                body_bytes_max(self.directory.request_tokens_max),
                BodyReservation(self.body_memory, principal.organization),
                first_seconds=self.body_begins_seconds,
            )
            parse = self.parse_offload.parse
            return body, await parse(dialect, body, principal.organization, find)
        except Exception:
            if plan is not None:
                self.rate_limits.count(plan)
            raise

    async def reserve_rate(
        self,
        response: HttpResponse,
        principal: Principal,
        inference: InferenceRequest,
        *,
        plan: RateLimitPlan | None,
        makes: bool = True,
    ) -> RateReservation | None:
        """Take a request of the caller's limits; None where nothing limits it. Raises
        RateLimited."""
        if plan is None:
            return None
        key_id = principal.key.key_id
        return await self.rate_limits.reserve(response, plan, key_id, inference, makes=makes)

    async def serve(
        self,
        http: ApiRequest,
        response: HttpResponse,
        principal: Principal,
        inference: InferenceRequest,
        *,
        rate: RateReservation | None,
        execution: IdempotentExecution | None = None,
    ) -> None:
        """Admit the request, have replicas answer it, and settle what it took. Raises ApiError."""
        self.services.retries.record_request(principal.organization_id)
        told = http.header(b"traceparent")
        traceparent = valid_traceparent(told) if told else None
        trace = None
        if self.tracing.is_exporting:
            trace = self._begin_trace(response, inference, traceparent)
        attempts: AttemptRunner | None = None
        error: str | None = "internal"
        try:
            # Nothing may disagree with the time in the id: its day and its budgets' periods.
            received_at = moment_of(response.request_id)
            admission = await self.admission.admit(
                *(principal, inference, received_at),
                lambda: not response.is_disconnected or _is_followed(execution),
            )
            record = MeterRecord(
                event_id=response.request_id,
                gateway_id=self.services.journal.gateway_id,
                organization_id=principal.organization_id,
                project_id=principal.project.project_id,
                key_id=principal.key.key_id,
                model_id=inference.model.model_id,
                deployment_id=admission.deployment.deployment_id,
                schedule=admission.schedule,
                endpoint=inference.dialect.name,
                received_at=received_at,
                streamed=inference.engine_request.is_streamed,
                client_request_id=http.client_request_id,
            )
            attempts = AttemptRunner(
                *(self.services, response, inference, admission, record),
                execution=execution,
                trace=trace,
                traceparent=traceparent,
            )
            self.running.add(attempts)
            await self.answer(attempts, rate, execution)
            error = None
        except ApiError as refused:
            error = refused.code or refused.kind
            raise
        finally:
            if attempts is not None:
                self.running.discard(attempts)
            if trace is not None:
                trace.end(span_attributes(attempts), error)

    async def answer(
        self,
        attempts: AttemptRunner,
        rate: RateReservation | None,
        execution: IdempotentExecution | None,
    ) -> None:
        """Have replicas answer, and settle; only then the last bytes leave. Raises ApiError."""
        response = attempts.response
        outcome: Outcome = "engine_failed"
        try:
            with response.on_disconnect(attempts.client_disconnected):
                await attempts.run()  # queue → route → call → relay → render, at most twice
            outcome = attempts.outcome
        except STEP_ERRORS as failure:  # disconnect, deadline, pool, engine
            outcome = outcome_of(failure)
            if isinstance(failure, ClientTooSlow):
                response.abort()
            raise_api_error(failure, attempts.inference)
        finally:
            if execution is not None:
                execution.recording.unwatch()
            end = await self.settle(attempts, outcome, rate, execution)
        if outcome == "completed" and end is not None:
            await send_end(response, *end, execution)

    async def settle(
        self,
        attempts: AttemptRunner,
        outcome: Outcome,
        rate: RateReservation | None,
        execution: IdempotentExecution | None,
    ) -> tuple[Headers, bytes] | None:
        """Charge or void, and make the event durable; return the head and the end of an answer that
        completed. Raises ApiError where it cannot be recorded, or stored for its key: then it is
        waived."""
        reservation, services = attempts.admission.reservation, self.services
        if attempts.cancel_scope.is_detached:
            services.disconnect_drain.exit(attempts.admission.slot_request)
        if attempts.replica_id is None:
            reservation.void()
            return None
        timings = attempts.timings
        try:
            usage = await attempts.usage(outcome)
        except InvalidEngineResponse:
            # An engine that cannot count is at fault, whoever ended the request.
            usage, outcome = NO_TOKENS, "engine_failed"
        if rate is not None:
            _settle_rate(rate, usage, is_unmeasured=attempts.is_unmeasured)
        charged_nanos = price_of(attempts.record, usage, outcome)
        end = _end_of(attempts, charged_nanos) if outcome == "completed" else None
        unstored: ApiError | None = None
        if execution is not None and end is not None:
            try:
                await execution.store(*end)
            except ServiceUnavailable as error:
                unstored, outcome, charged_nanos = error, "gateway_lost", 0
        event = make_event(
            attempts.record,
            outcome=outcome,
            replica_id=attempts.replica_id,
            tokens=usage,
            timings=timings,
            charges=reservation.charge(charged_nanos),
        )
        try:
            await self._commit(event, execution if outcome == "completed" else None)
        except JournalUnavailable:
            reservation.revoke()
            services.journal.commit_later(attempts.lost_event())
            raise usage_unavailable() from None
        finally:
            services.metrics.note_end(event)
            attempts.event = event
        if unstored is not None:
            raise unstored
        return end

    async def _commit(self, event: UsageEvent, execution: IdempotentExecution | None) -> None:
        """Make the event durable. Raises JournalUnavailable."""
        if execution is None:
            await self.services.journal.commit(event)
        else:
            await execution.complete(self.services.journal.commit(event, completes_claim=True))

    def stop_all(self) -> None:
        """Cut short whatever is under way: the gateway stops. Clients are told, and pay nothing."""
        for attempts in list(self.running):
            attempts.cancel_scope.gateway_stopping()

    def _begin_trace(
        self, response: HttpResponse, inference: InferenceRequest, traceparent: str | None
    ) -> RequestTrace:
        operation = OPERATION_NAMES[inference.engine_request.operation]
        return self.tracing.begin(
            f"{operation} {inference.model.public_id}",
            traceparent,
            {
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": "penstock",
                "gen_ai.request.model": inference.model.public_id,
                "penstock.request_id": response.request_id,
            },
            time.perf_counter() - response.started_at,
        )


def _is_followed(execution: IdempotentExecution | None) -> bool:
    """Whether others wait for the same answer."""
    return execution is not None and execution.recording.is_followed


def _settle_rate(rate: RateReservation, usage: TokenUsage, *, is_unmeasured: bool) -> None:
    """Before the end is told: whoever hears it may send its next request elsewhere."""
    if is_unmeasured:
        rate.settle_as_estimated()
    else:
        fresh = usage.input - usage.cached_input
        rate.settle(input_tokens=fresh, output_tokens=usage.output)


def _end_of(attempts: AttemptRunner, charged_nanos: int) -> tuple[Headers, bytes]:
    """Return the head of an answer besides our own, and its end; a whole one says what it cost."""
    relay: Relay | None = attempts.relay
    if relay is None:
        raise RuntimeError("nothing was relayed")
    if attempts.response.has_started:
        return relay.headers, relay.final_bytes
    cost = (b"x-penstock-cost-nanos", b"%d" % charged_nanos)
    return [*relay.headers, cost], relay.final_bytes


async def send_end(
    response: HttpResponse,
    headers: Headers,
    final_bytes: bytes,
    execution: IdempotentExecution | None,
) -> None:
    """Tell the client the end: its usage is durable now. Raises ClientDisconnected."""
    if execution is not None:
        execution.recording.complete(headers, final_bytes)
    if response.has_started:
        await response.finish(final_bytes)
    else:
        await response.send(200, final_bytes, headers)


def span_attributes(attempts: AttemptRunner | None) -> Attributes:
    """Say in the GenAI conventions what a request took."""
    event = None if attempts is None else attempts.event
    if event is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": event.input_tokens,
        "gen_ai.usage.output_tokens": event.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": event.cached_input_tokens,
        "penstock.outcome": event.outcome,
        "penstock.queue_seconds": event.queue_seconds,
    }
