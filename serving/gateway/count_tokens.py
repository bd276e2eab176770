"""Counting a prompt's tokens by the engine's own tokenizer: no work on it, no event, no charge.

Who asks for a count waits for a turn and takes a slot as for any request, so that nobody counts at
others' cost.
"""

import asyncio
from collections import Counter

from msgspec.structs import replace

from serving.contract.replica import ReplicaRecord
from serving.engine.errors import EngineError, InvalidEngineResponse, RequestRejected, error_of
from serving.engine.http_client import ReplicaClient, ReplicaResponse
from serving.engine.request import (
    TOKENIZE_ANSWER_BYTES_MAX,
    EngineRequest,
    TokenizeRequest,
    engine_headers,
    read_count,
    write_count,
    write_counts,
)
from serving.gateway.admission import (
    AdmissionController,
    deployment_of,
    in_order,
    slot_of,
    slot_request_of,
)
from serving.gateway.auth import Principal
from serving.gateway.cancel_scope import CancelScope, RequestCancelled
from serving.gateway.dialects.base import InferenceRequest, TokenCountDialect
from serving.gateway.error_mapping import model_unavailable, no_slot
from serving.gateway.errors import BadRequest, DeadlineExceeded
from serving.gateway.http.response import ClientDisconnected, HttpResponse
from serving.pool.replicas import Replica
from serving.pool.slot_request import PoolError

COUNT_SECONDS = 1.0
"""For a replica to count what an engine left unsaid: nobody waits for it, but the money held."""
COUNTS_OF_ONE_MAX = 2
"""At once, of one organization, or of all that never paid."""
COUNTS_WAITING_MAX = 256
"""Of the same, those at work included."""


class PromptCounts:
    """Counts the prompts of requests whose clients left before the engine said anything, a few at a
    time of each tenant. They hold no slots."""

    def __init__(self, client: ReplicaClient) -> None:
        self._client = client
        self._counts: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def count(
        self,
        tenant_id: str,
        replica: ReplicaRecord,
        engine_request: EngineRequest,
        *,
        served_name: str,
        request_id: str,
        connect_seconds: float,
    ) -> int | None:
        """Return how many tokens the prompts of a request have; None where the replica cannot
        count, does not answer in time, or too many of the tenant's prompts wait to be counted."""
        if "count" not in replica.capabilities or engine_request.operation == "embeddings":
            return None
        if self._counts[tenant_id] >= COUNTS_WAITING_MAX:
            return None
        self._counts[tenant_id] += 1
        turns = self._turns.setdefault(tenant_id, asyncio.Semaphore(COUNTS_OF_ONE_MAX))
        try:
            async with turns, asyncio.timeout(COUNT_SECONDS):
                tokens, requests = write_counts(
                    engine_request, served_name=served_name, text_guard=replica.text_guard
                )
                for request in requests:
                    tokens += await _ask(
                        self._client, replica, request, request_id, connect_seconds
                    )
                return tokens
        except (EngineError, TimeoutError):
            return None
        finally:
            self._counts[tenant_id] -= 1
            if not self._counts[tenant_id]:
                del self._counts[tenant_id], self._turns[tenant_id]


async def _ask(
    client: ReplicaClient,
    replica: ReplicaRecord,
    request: TokenizeRequest,
    request_id: str,
    connect_seconds: float,
) -> int:
    """Return a replica's count. Raises EngineError."""
    async with client.call(
        replica.url.rstrip("/") + request.path,
        request.body,
        engine_headers(replica.token, request_id),
        connect_seconds=connect_seconds,
    ) as answer:
        status = await answer.status()
        body = await _whole(answer)
        if status != 200:
            raise error_of(status, body)
        return read_count(body)


class TokenCounter:
    """Asks replicas to count."""

    def __init__(self, client: ReplicaClient, admission: AdmissionController) -> None:
        self._client = client
        self._admission = admission

    async def count(
        self,
        principal: Principal,
        dialect: TokenCountDialect,
        inference: InferenceRequest,
        response: HttpResponse,
    ) -> int:
        """Return how many tokens the job's prompt has. Raises ApiError, and ClientDisconnected as
        soon as nobody waits for it any more."""
        able = self._admission.candidates(inference, principal.organization)
        candidates = in_order(able, inference)
        deployment, pool = candidates[0]
        slot_request = slot_request_of(
            principal, inference, deployment, token_bytes=pool.queue.token_bytes
        )
        slot_request = replace(slot_request, sequences=1, output_tokens_max=0)
        timeouts = deployment.timeouts
        scope = CancelScope(timeouts.total_seconds)
        try:
            with response.on_disconnect(scope.client_gone), scope:
                async with slot_of(candidates, slot_request) as slot:
                    served_name = deployment_of(candidates, slot).served_name
                    scope.set_deadline("first_byte", timeouts.first_byte_seconds)
                    return await self._ask(
                        *(slot.replica, inference, served_name, response.request_id),
                        timeouts.connect_seconds,
                    )
        except RequestCancelled as cancelled:
            if cancelled.reason == "client_gone":
                raise ClientDisconnected from None
            raise DeadlineExceeded("The model took too long to count.", code="timeout") from None
        except RequestRejected as refused:
            raise dialect.rejection(refused, inference) from None
        except PoolError as full:
            raise no_slot(full) from None
        except EngineError:
            raise model_unavailable() from None

    async def _ask(
        self,
        replica: Replica,
        inference: InferenceRequest,
        served_name: str,
        request_id: str,
        connect_seconds: float,
    ) -> int:
        if "count" not in replica.record.capabilities:
            message = "This model's engine cannot count tokens."
            raise BadRequest(message, code="unsupported_value", param="model")
        request = write_count(
            inference.engine_request, served_name=served_name, text_guard=replica.record.text_guard
        )
        return await _ask(self._client, replica.record, request, request_id, connect_seconds)


async def _whole(answer: ReplicaResponse) -> bytes:
    """Return an answer's body. Raises InvalidEngineResponse when it outgrows its bound."""
    body = bytearray()
    while data := await answer.read():
        body += data
        if len(body) > TOKENIZE_ANSWER_BYTES_MAX:
            raise InvalidEngineResponse("a count is larger than 16 MB")
    return bytes(body)
