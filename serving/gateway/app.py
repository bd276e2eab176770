"""The ASGI application: a request, read aloud."""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import structlog

from serving.contract.ids import moment_of
from serving.contract.usage import UsageEvent
from serving.gateway import models
from serving.gateway.admission import Admission, Admitted
from serving.gateway.auth import authenticate
from serving.gateway.conversation import ClientGone, Conversation, Receive, Scope, Send
from serving.gateway.directory import Directory, Principal
from serving.gateway.errors import ApiError, MethodNotAllowed, NotFound
from serving.gateway.exchange import Exchange, Means
from serving.gateway.job import CHAT, COMPLETIONS, Endpoint, Job, prepare
from serving.telemetry import Attributes, Trace, valid_traceparent
from serving.usage.meter import Metered

log = structlog.get_logger(__name__)

MODELS_PATH = "/v1/models/"
GENERATING: dict[str, Endpoint] = {endpoint.path: endpoint for endpoint in (CHAT, COMPLETIONS)}
"""Every POST route. Each has a test of its metering and one of a budget's refusal (I5)."""

Answer = Callable[[Conversation], Awaitable[None]]


class App:
    """What uvicorn calls. `now` is the wall clock, in UTC."""

    def __init__(
        self,
        directory: Directory,
        admission: Admission,
        means: Means,
        *,
        key_pepper: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        make_id: Callable[[], str],
    ) -> None:
        self.directory = directory
        self.means = means
        self.in_flight = 0
        self._admission = admission
        self._pepper = key_pepper.encode()
        self._now = now
        self._make_id = make_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        conversation = Conversation(scope, receive, send, self._make_id())
        self.in_flight += 1
        try:
            await self._answer(conversation)
        except ApiError as error:
            await conversation.refuse(error)
        except ClientGone:
            return
        except Exception:
            log.exception("request_failed", request_id=conversation.request_id)
            await conversation.refuse(ApiError("The server had an error. Please try again."))
        finally:
            self.in_flight -= 1
            self.means.metrics.response(conversation.status)()

    async def _answer(self, conversation: Conversation) -> None:
        conversation.check_headers()
        answer = self._route(conversation)
        await answer(conversation)

    def _route(self, conversation: Conversation) -> Answer:
        method, path = conversation.method, conversation.path
        wanted, answer = self._find(path)
        if method not in (wanted, "HEAD" if wanted == "GET" else wanted):
            raise MethodNotAllowed(f"Use {wanted} for {path}.", code="method_not_allowed")
        return answer

    def _find(self, path: str) -> tuple[str, Answer]:
        endpoint = GENERATING.get(path)
        if endpoint is not None:
            return "POST", lambda conversation: self._generate(conversation, endpoint)
        if path == MODELS_PATH.rstrip("/"):
            return "GET", self._list_models
        if path.startswith(MODELS_PATH):
            return "GET", self._show_model
        raise NotFound("There is nothing at this address.", code="unknown_url")

    def _principal(self, conversation: Conversation) -> Principal:
        return authenticate(
            self.directory,
            self._pepper,
            authorization=conversation.header(b"authorization"),
            client_host=conversation.client_host,
            now=self._now(),
        )

    async def _list_models(self, conversation: Conversation) -> None:
        principal = self._principal(conversation)
        await conversation.reply(200, models.list_models(self.directory, principal))

    async def _show_model(self, conversation: Conversation) -> None:
        principal = self._principal(conversation)
        name = conversation.path.removeprefix(MODELS_PATH)
        await conversation.reply(200, models.show_model(self.directory, principal, name))

    async def _generate(self, conversation: Conversation, endpoint: Endpoint) -> None:
        principal = self._principal(conversation)
        data = await conversation.body()
        job = self._prepare(endpoint, data, principal)
        self.means.retries.note_request()
        trace = self._begin_trace(conversation, job)
        attributes: Attributes = {}
        error: str | None = "internal"
        try:
            attributes = await self._exchange(conversation, principal, job, trace)
            error = None
        except ApiError as refused:
            error = refused.code or refused.kind
            raise
        finally:
            trace.end(attributes, error)

    async def _exchange(
        self, conversation: Conversation, principal: Principal, job: Job, trace: Trace
    ) -> Attributes:
        """Admit and serve; return what a span should say of it."""
        # Nothing may disagree with the time in the event's id: its day and its budgets' periods.
        received_at = moment_of(conversation.request_id)
        admitted = await self._admission.admit(principal, job, received_at)
        metered = self._metered(conversation, principal, job, admitted, received_at)
        exchange = Exchange(
            self.means, conversation, job=job, admitted=admitted, metered=metered, trace=trace
        )
        await exchange.run()
        return span_attributes(exchange.event)

    def _begin_trace(self, conversation: Conversation, job: Job) -> Trace:
        operation = job.endpoint.operation
        return self.means.tracing.begin(
            f"{operation} {job.model.public_id}",
            valid_traceparent(conversation.header(b"traceparent")),
            {
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": "penstock",
                "gen_ai.request.model": job.model.public_id,
                "penstock.request_id": conversation.request_id,
            },
            time.perf_counter() - conversation.started_at,
        )

    def _prepare(self, endpoint: Endpoint, data: bytes, principal: Principal) -> Job:
        request = endpoint.decode(data)
        model = models.find(self.directory, principal, request.model)
        return prepare(
            endpoint,
            request,
            body_bytes=len(data),
            model=model,
            cache_salt=principal.cache_salt,
        )

    def _metered(
        self,
        conversation: Conversation,
        principal: Principal,
        job: Job,
        admitted: Admitted,
        received_at: datetime,
    ) -> Metered:
        return Metered(
            event_id=conversation.request_id,
            gateway_id=self.means.journal.gateway_id,
            organization_id=principal.organization_id,
            project_id=principal.project.project_id,
            key_id=principal.key.key_id,
            model_id=job.model.model_id,
            deployment_id=admitted.deployment.deployment_id,
            schedule=admitted.schedule,
            endpoint=job.endpoint.name,
            received_at=received_at,
            streamed=job.streamed,
            client_request_id=conversation.client_request_id,
        )


def span_attributes(event: UsageEvent | None) -> Attributes:
    """Say in the GenAI conventions what a request took."""
    if event is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": event.input_tokens,
        "gen_ai.usage.output_tokens": event.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": event.cached_input_tokens,
        "penstock.outcome": event.outcome,
        "penstock.queue_seconds": event.queue_seconds,
    }
