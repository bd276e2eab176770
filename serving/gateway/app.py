"""The application: routes, error replies, and the requests under way."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

import structlog

from serving.contract.client_address import UnknownProxy
from serving.gateway import cors
from serving.gateway.auth import ApiRequest, RefusalPacer
from serving.gateway.count_tokens import TokenCounter
from serving.gateway.dialects.anthropic.envelope import AnthropicEnvelope
from serving.gateway.dialects.base import Envelope, TokenCountDialect
from serving.gateway.dialects.openai.envelope import OpenAIEnvelope
from serving.gateway.dialects.routes import COUNTING, DIALECTS, GENERATING
from serving.gateway.errors import JSON, ApiError, MethodNotAllowed, NotFound
from serving.gateway.failed_requests import FailedRequestLog
from serving.gateway.http.connection_limits import place_of
from serving.gateway.http.response import ClientDisconnected, Exchange, HttpResponse
from serving.gateway.http.write_buffer import WriteMemory
from serving.gateway.idempotency.guard import RAW_HEADER, check_taken
from serving.gateway.inference import InferenceHandler
from serving.gateway.models import ModelsHandler

log = structlog.get_logger(__name__)

BASE = "/v1"
OURS = 500
"""The least status of errors that are no fault of the request."""
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


MODELS_PATH = "/v1/models"
HEALTH_PATH = "/health"
"""Where load generators look first, as vLLM has it; balancers ask the operator's port."""
OPENAI = OpenAIEnvelope()
ANTHROPIC = AnthropicEnvelope()
ANTHROPIC_HEADER = b"anthropic-version"
"""Anthropic's clients send it with every request."""


class GatewayApp:
    """What the server calls for each request."""

    def __init__(
        self,
        inference: InferenceHandler,
        *,
        failed_requests: FailedRequestLog,
        make_id: Callable[[], str],
        write_memory: WriteMemory,
        unknown_proxy: UnknownProxy,
    ) -> None:
        self.inference = inference
        self.in_flight = 0
        self.write_memory = write_memory
        self._directory = inference.directory
        self._token_counter = TokenCounter(inference.services.client, inference.admission)
        self._models = ModelsHandler(inference)
        self._failed_requests = failed_requests
        self._make_id = make_id
        self._unknown_proxy = unknown_proxy
        self._refusals = RefusalPacer()

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        http = ApiRequest(exchange)
        response = HttpResponse(
            exchange, self._make_id(), http.client_request_id, self.write_memory
        )
        envelope = _envelope(http)
        response.id_headers = envelope.id_headers
        self.in_flight += 1
        try:
            http.check_headers()
            self._watch_for_proxy(http)
            if http.has_origin:
                cors.open_response(http, response, self._directory)
            await self._route(http, response, envelope)
        except ApiError as error:
            await self._send_error(http, response, envelope, error)
        except ClientDisconnected:
            return
        except Exception:
            log.exception("request_failed", request_id=response.request_id)
            fault = ApiError("The server had an error. Please try again.")
            await self._send_error(http, response, envelope, fault)
        finally:
            response.close()
            http.close()
            if http.counted_for is not None:
                self.inference.in_progress.add(http.counted_for, -1)
            self.in_flight -= 1
            self.inference.services.metrics.responses[response.status] += 1

    async def _route(self, http: ApiRequest, response: HttpResponse, envelope: Envelope) -> None:
        method, path = http.method, http.path
        if method == "POST" and (dialect := GENERATING.get(path)) is not None:
            await self.inference.handle(http, response, dialect)
            return
        wanted = _method_of(path)
        if cors.is_preflight(http):
            http.release_connection()
            await cors.answer_preflight(http, response, self._directory, wanted)
        elif method not in (wanted, "HEAD" if wanted == "GET" else wanted):
            raise MethodNotAllowed(path, "GET, HEAD" if wanted == "GET" else wanted)
        elif wanted == "POST":
            await self._count_tokens(http, response, COUNTING[path])
        elif path == HEALTH_PATH:
            # Whoever asks whether anybody is here needs no key, and is told nothing else.
            http.release_connection()
            await response.send(200, b"{}")
        elif path == MODELS_PATH:
            await self._models.list(http, response, envelope)
        else:
            await self._models.show(http, response, envelope, path.removeprefix(MODELS_PATH + "/"))

    async def _count_tokens(
        self, http: ApiRequest, response: HttpResponse, dialect: TokenCountDialect
    ) -> None:
        inference = self.inference
        principal = inference.authenticate(http, response)
        plan = inference.rate_limits.plan_of(principal)
        _, request = await inference.read(http, response, principal, dialect, plan=plan)
        rate = await inference.reserve_rate(response, principal, request, plan=plan, makes=False)
        try:
            if http.has_header(RAW_HEADER):
                # Counting twice changes nothing: a key is right, and there is nothing to keep.
                check_taken(principal)
            tokens = await self._token_counter.count(principal, dialect, request, response)
        finally:
            if rate is not None:
                rate.void()
        await response.send(200, dialect.counted(tokens))

    async def _send_error(
        self, http: ApiRequest, response: HttpResponse, envelope: Envelope, error: ApiError
    ) -> None:
        """Tell a client that something is refused, if it is still there, and keep the reason."""
        self._failed_requests.add(response.request_id, http, error)
        if http.counted_for is None:
            http.release_connection()
        with suppress(ClientDisconnected):
            if http.principal is None and error.status < OURS:
                await self._pace(http, response)
            if response.has_started:
                await response.break_off(error)
            else:
                status, body = envelope.error_reply(error, response.request_id)
                await response.send(status, body, [*JSON, *error.headers])

    async def _pace(self, http: ApiRequest, response: HttpResponse) -> None:
        """Let a refusal wait where its address had many. Raises ClientDisconnected."""
        address = http.client_address(self.inference.trusted_proxies) or http.peer
        seconds = self._refusals.delay_seconds(place_of(str(address)))
        if not seconds:
            return
        gone = asyncio.Event()
        with suppress(TimeoutError), response.on_disconnect(gone.set):
            async with asyncio.timeout(seconds):
                await gone.wait()
            raise ClientDisconnected

    def _watch_for_proxy(self, http: ApiRequest) -> None:
        """Tell the operator, once, of a balancer that passes clients on and is not configured."""
        if self._unknown_proxy.is_watching and http.has_header(b"x-forwarded-for"):
            words = self._unknown_proxy.notice(http.peer, "X-Forwarded-For")
            log.warning("unknown_load_balancer", peer=http.peer, advice=words)


def _envelope(http: ApiRequest) -> Envelope:
    """Return in whose language a route answers; elsewhere the client's headers tell."""
    dialect = DIALECTS.get(http.path)
    return dialect or (ANTHROPIC if http.has_header(ANTHROPIC_HEADER) else OPENAI)


def _method_of(path: str) -> str:
    """Return the method of a route. Raises NotFound."""
    if path in DIALECTS:
        return "POST"
    if path in (HEALTH_PATH, MODELS_PATH) or path.startswith(MODELS_PATH + "/"):
        return "GET"
    raise NotFound(nothing_at(path, tuple(DIALECTS)), code="unknown_url")
