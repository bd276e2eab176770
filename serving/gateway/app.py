"""The ASGI application: routes, error replies, and the requests under way."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import structlog

from serving.contract.client_address import Network, UnknownProxy
from serving.contract.ids import moment_of
from serving.contract.records import ModelRecord
from serving.engine.request import Operation
from serving.gateway import cors, models
from serving.gateway.admission import Admission, AdmissionController
from serving.gateway.auth import Principal, check_permitted
from serving.gateway.conversation import (
    OPENAI,
    ClientDisconnected,
    Conversation,
    Receive,
    Scope,
    Send,
)
from serving.gateway.count_tokens import TokenCounter
from serving.gateway.dialects.anthropic.envelope import AnthropicEnvelope
from serving.gateway.dialects.base import (
    Dialect,
    Envelope,
    InferenceDialect,
    InferenceRequest,
    TokenCountDialect,
)
from serving.gateway.dialects.routes import COUNTING, DIALECTS, GENERATING
from serving.gateway.directory import Directory
from serving.gateway.errors import ApiError, MethodNotAllowed, NotFound
from serving.gateway.exchange import Exchange, GatewayServices
from serving.gateway.failed_requests import FailedRequestLog
from serving.gateway.http.body_memory import BodyMemory
from serving.gateway.http.write_buffer import WriteMemory
from serving.gateway.idempotency.execution import IdempotentExecution
from serving.gateway.idempotency.guard import RAW_HEADER, IdempotencyGuard, check_taken
from serving.gateway.parse_offload import ParseOffload, body_bytes_max
from serving.gateway.rate_limits import RateLimitEnforcer
from serving.limits.limiter import RateReservation
from serving.telemetry import Attributes, RequestTrace, valid_traceparent
from serving.usage.meter import MeterRecord

log = structlog.get_logger(__name__)


BASE = "/v1"
PATH_CHARACTERS_MAX = 200


def nothing_at(path: str, routes: Iterable[str]) -> str:
    """Return the message: which address, and which one was likely meant."""
    known = ("/v1/models", *routes)
    told = f"There is nothing at '{path[:PATH_CHARACTERS_MAX]}'."
    meant = [route for route in known if path.endswith(route.removeprefix(BASE))]
    if not meant:
        return f"{told} There are {', '.join(known)}."
    route = max(meant, key=len)
    before = path.removesuffix(route.removeprefix(BASE))
    fix = "'/v1' is missing: put it at the end of the base URL"
    if before.endswith(BASE):
        fix = f"Leave '{before.removesuffix(BASE)[:PATH_CHARACTERS_MAX]}' out of the base URL"
    return f"{told} Did you mean '{route}'? {fix}."


MODELS_PATH = "/v1/models/"
HEALTH_PATH = "/health"
"""Where load generators look first, as vLLM has it; balancers ask the operator's port."""
ANTHROPIC = AnthropicEnvelope()
ANTHROPIC_HEADER = b"anthropic-version"
"""Anthropic's clients send it with every request."""
OPERATION_NAMES: dict[Operation, str] = {
    "chat": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
}
"""In the words of OpenTelemetry's GenAI conventions."""

Answer = Callable[[Conversation], Awaitable[None]]


class GatewayApp:
    """What uvicorn calls. `now` is the wall clock, in UTC."""

    def __init__(
        self,
        directory: Directory,
        admission: AdmissionController,
        means: GatewayServices,
        preparation: ParseOffload,
        once: IdempotencyGuard,
        *,
        rates: RateLimitEnforcer,
        failed_requests: FailedRequestLog,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        make_id: Callable[[], str],
        body_begins_seconds: float,
        bodies: BodyMemory,
        pending: WriteMemory,
        trusted_proxies: Sequence[Network] = (),
        unknown_proxy: UnknownProxy,
    ) -> None:
        self.directory = directory
        self.trusted_proxies = trusted_proxies
        self._unknown_proxy = unknown_proxy
        self.means = means
        self.in_flight = 0
        self.bodies = bodies
        self.pending = pending
        self._exchanges: set[Exchange] = set()
        self._admission = admission
        self._preparation = preparation
        self._once = once
        self._rates = rates
        self._failed_requests = failed_requests
        self._counter = TokenCounter(means.client, admission)
        self._now = now
        self._make_id = make_id
        self._body_begins_seconds = body_begins_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, on the `Cycle` that the scope brings."""
        conversation = Conversation(scope, self._make_id(), self.pending)
        self.in_flight += 1
        try:
            conversation.envelope = _envelope(conversation)
            conversation.check_headers()
            self._watch_for_proxy(conversation)
            cors.open_reply(conversation, self.directory)
            await self._route(conversation)(conversation)
        except ApiError as error:
            await self._refuse(conversation, error)
        except ClientDisconnected:
            return
        except Exception:
            log.exception("request_failed", request_id=conversation.request_id)
            fault = ApiError("The server had an error. Please try again.")
            await self._refuse(conversation, fault)
        finally:
            conversation.close()
            self.in_flight -= 1
            self.means.metrics.responses[conversation.status] += 1

    def _watch_for_proxy(self, conversation: Conversation) -> None:
        """Tell the operator, once, of a balancer that passes clients on and is not configured."""
        is_watching = self._unknown_proxy.is_watching
        if is_watching and conversation.has_header(b"x-forwarded-for"):
            words = self._unknown_proxy.notice(conversation.peer, "X-Forwarded-For")
            log.warning("unknown_load_balancer", peer=conversation.peer, advice=words)

    async def _refuse(self, conversation: Conversation, error: ApiError) -> None:
        """Tell a client that something is refused, if it is still there, and keep the reason."""
        self._failed_requests.add(conversation, error)
        with suppress(ClientDisconnected):
            await conversation.refuse(error)

    def end_all(self) -> None:
        """Cut short whatever is under way."""
        for exchange in list(self._exchanges):
            exchange.end_now()

    def _route(self, conversation: Conversation) -> Answer:
        method, path = conversation.method, conversation.path
        wanted, answer = self._find(path)
        if cors.is_preflight(conversation):
            return lambda asked: cors.answer_preflight(asked, self.directory, wanted)
        if method not in (wanted, "HEAD" if wanted == "GET" else wanted):
            raise MethodNotAllowed(path, "GET, HEAD" if wanted == "GET" else wanted)
        return answer

    def _find(self, path: str) -> tuple[str, Answer]:
        if (generating := GENERATING.get(path)) is not None:
            return "POST", lambda conversation: self._generate(conversation, generating)
        if (counting := COUNTING.get(path)) is not None:
            return "POST", lambda conversation: self._count(conversation, counting)
        if path == HEALTH_PATH:
            return "GET", _tell_health
        if path == MODELS_PATH.removesuffix("/"):
            return "GET", self._list_models
        if path.startswith(MODELS_PATH):
            return "GET", self._show_model
        raise NotFound(nothing_at(path, tuple(DIALECTS)), code="unknown_url")

    def _principal(self, conversation: Conversation) -> Principal:
        principal = self.directory.authenticator.authenticate(
            conversation.authorization,
            lambda: conversation.client_address(self.trusted_proxies),
            self._now(),
        )
        conversation.principal = principal
        check_permitted(principal)
        cors.check_origin(conversation, principal.project.allowed_origins)
        return principal

    def _looker(self, conversation: Conversation) -> Principal:
        """Return who asks what there is, which is a request like any other."""
        principal = self._principal(conversation)
        self._rates.check(conversation, principal)
        self._rates.count(principal)
        return principal

    async def _list_models(self, conversation: Conversation) -> None:
        principal = self._looker(conversation)
        offers = models.offers_of(self.directory, principal)
        await conversation.reply(200, conversation.envelope.model_list(offers))

    async def _show_model(self, conversation: Conversation) -> None:
        principal = self._looker(conversation)
        name = conversation.path.removeprefix(MODELS_PATH)
        model = models.find(self.directory, principal, name)
        await conversation.reply(200, conversation.envelope.model_card(name, model))

    async def _count(self, conversation: Conversation, dialect: TokenCountDialect) -> None:
        principal = self._principal(conversation)
        _, job = await self._read(conversation, principal, dialect)
        reserved = await self._rates.reserve(conversation, principal, job, makes=False)
        try:
            if conversation.has_header(RAW_HEADER):
                # Counting twice changes nothing: a key is right, and there is nothing to keep.
                check_taken(principal)
            tokens = await self._counter.count(principal, dialect, job, conversation)
        finally:
            if reserved is not None:
                reserved.void()
        await conversation.reply(200, dialect.counted(tokens))

    async def _generate(self, conversation: Conversation, dialect: InferenceDialect) -> None:
        principal = self._principal(conversation)
        body, job = await self._read(conversation, principal, dialect)
        reserved = await self._rates.reserve(conversation, principal, job)
        try:
            work = partial(self._work, conversation, principal, job, reserved)
            if conversation.has_header(RAW_HEADER):
                await self._once.serve(conversation, principal, body, work)
            else:
                await work()
        finally:
            if reserved is not None:
                reserved.void()

    async def _work(
        self,
        conversation: Conversation,
        principal: Principal,
        job: InferenceRequest,
        reserved: RateReservation | None,
        turn: IdempotentExecution | None = None,
    ) -> None:
        self.means.retries.note_request(principal.organization.organization_id)
        trace = self._begin_trace(conversation, job)
        exchange: Exchange | None = None
        error: str | None = "internal"
        try:
            exchange = await self._admit(conversation, principal, job, trace, turn)
            self._exchanges.add(exchange)
            exchange.reserved = reserved
            await exchange.run()
            error = None
        except ApiError as refused:
            error = refused.code or refused.kind
            raise
        finally:
            if exchange is not None:
                self._exchanges.discard(exchange)
            trace.end(lambda: span_attributes(exchange), error)

    async def _admit(
        self,
        conversation: Conversation,
        principal: Principal,
        job: InferenceRequest,
        trace: RequestTrace,
        turn: IdempotentExecution | None,
    ) -> Exchange:
        # Nothing may disagree with the time in the event's id: its day and its budgets' periods.
        received_at = moment_of(conversation.request_id)
        admitted = await self._admission.admit(
            *(principal, job, received_at),
            lambda: not conversation.is_gone or (turn is not None and turn.copy.is_followed),
        )
        metered = self._metered(conversation, principal, job, admitted, received_at)
        return Exchange(
            self.means,
            conversation,
            job=job,
            admitted=admitted,
            metered=metered,
            trace=trace,
            turn=turn,
        )

    def _begin_trace(self, conversation: Conversation, job: InferenceRequest) -> RequestTrace:
        operation = OPERATION_NAMES[job.work.operation]
        return self.means.tracing.begin(
            f"{operation} {job.model.public_id}",
            valid_traceparent(conversation.header(b"traceparent")),
            lambda: {
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": "penstock",
                "gen_ai.request.model": job.model.public_id,
                "penstock.request_id": conversation.request_id,
            },
            time.perf_counter() - conversation.started_at,
        )

    async def _read(
        self, conversation: Conversation, principal: Principal, dialect: Dialect
    ) -> tuple[list[bytes], InferenceRequest]:
        """Return a body and the job that it asks for. One that comes to none is a request too."""
        self._rates.check(conversation, principal)
        try:
            body = await self._body(conversation, principal)
            return body, await self._prepare(conversation, principal, dialect, body)
        except Exception:
            self._rates.count(principal)
            raise

    async def _body(self, conversation: Conversation, principal: Principal) -> list[bytes]:
        of_whom = principal.organization
        held = self.bodies.hold(of_whom.organization_id, of_whom.weight)
        bytes_max = body_bytes_max(self.directory.request_tokens_max)
        return await conversation.body(bytes_max, held, first_seconds=self._body_begins_seconds)

    async def _prepare(
        self,
        conversation: Conversation,
        principal: Principal,
        dialect: Dialect,
        body: list[bytes],
    ) -> InferenceRequest:
        def find(name: str) -> ModelRecord:
            model = models.find_for(dialect.task, self.directory, principal, name)
            conversation.variant_id = model.variant_id
            return model

        return await self._preparation.prepare(dialect, body, principal.organization_id, find)

    def _metered(
        self,
        conversation: Conversation,
        principal: Principal,
        job: InferenceRequest,
        admitted: Admission,
        received_at: datetime,
    ) -> MeterRecord:
        return MeterRecord(
            event_id=conversation.request_id,
            gateway_id=self.means.journal.gateway_id,
            organization_id=principal.organization_id,
            project_id=principal.project.project_id,
            key_id=principal.key.key_id,
            model_id=job.model.model_id,
            deployment_id=admitted.deployment.deployment_id,
            schedule=admitted.schedule,
            endpoint=job.dialect.name,
            received_at=received_at,
            streamed=job.work.is_streamed,
            client_request_id=conversation.client_request_id,
        )


def _envelope(conversation: Conversation) -> Envelope:
    """Return in whose language a route answers; elsewhere the client's headers tell."""
    dialect = DIALECTS.get(conversation.path)
    return dialect or (ANTHROPIC if conversation.has_header(ANTHROPIC_HEADER) else OPENAI)


async def _tell_health(conversation: Conversation) -> None:
    """Answer whoever asks whether anybody is here; it needs no key and tells nothing else."""
    await conversation.reply(200, b"{}")


def span_attributes(exchange: Exchange | None) -> Attributes:
    """Say in the GenAI conventions what a request took."""
    event = None if exchange is None else exchange.event
    if event is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": event.input_tokens,
        "gen_ai.usage.output_tokens": event.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": event.cached_input_tokens,
        "penstock.outcome": event.outcome,
        "penstock.queue_seconds": event.queue_seconds,
    }
