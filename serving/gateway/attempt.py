"""One try at an answer: one slot, one call of its replica, one relay of what it says."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

import msgspec

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
from serving.engine.request import EngineHttpRequest, write
from serving.gateway.admission import Admission, deployment_of
from serving.gateway.cancel_scope import CancelScope
from serving.gateway.conversation import Conversation
from serving.gateway.count_tokens import count_prompt
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.relay import Relay
from serving.gateway.render_offload import RenderOffload
from serving.pool.pool import Slot
from serving.telemetry import RequestTrace

ENGINE_SILENT = frozenset({"first_byte", "gap"})


class AttemptContext(msgspec.Struct, frozen=True):
    """What every try at one request works with; `observe_gap` hears the time between chunks."""

    client: ReplicaClient
    finishing: RenderOffload
    conversation: Conversation
    interrupts: CancelScope
    job: InferenceRequest
    admitted: Admission
    trace: RequestTrace
    observe_gap: Callable[[float], None]


Heard = Callable[["ReplicaAttempt"], None]


def _nobody(one: "ReplicaAttempt") -> None:
    """Hear nothing."""


class ReplicaAttempt:
    """One of them; who runs it hears of it, and is not kept by it."""

    def __init__(self, asked: AttemptContext, slot: Slot) -> None:
        self.slot = slot
        self.replica_id: str | None = None
        self.deployment_id = ""
        """Of the replica, once there is one."""
        self.relay: Relay | None = None
        self.queue_seconds = 0.0
        self.is_broken = False
        """Whether the replica failed it."""
        self.has_lost = False
        """Whether another try at the same request goes on, and nobody wants this one."""
        self._asked = asked

    @property
    def has_usage(self) -> bool:
        """Whether the engine has said anything of what it took."""
        return self.relay is not None and self.relay.has_usage

    async def count_prompt(self) -> TokenUsage | None:
        """Have the replica's tokenizer count the prompt of which its engine said nothing."""
        asked, record = self._asked, self.slot.replica.record
        deployment = deployment_of(asked.admitted.places, self.slot)
        tokens = await count_prompt(
            *(asked.client, record, asked.job.work),
            served_name=deployment.served_name,
            request_id=asked.conversation.request_id,
            connect_seconds=deployment.timeouts.connect_seconds,
        )
        return None if tokens is None else TokenUsage(input=tokens)

    def counted(self) -> TokenUsage | None:
        """Return what the engine has counted so far, if it has."""
        if self.relay is None or not self.relay.has_usage:
            return None
        try:
            asked = self._asked
            return asked.job.bounded(self.relay.tokens, asked.admitted.input_tokens_max)
        except InvalidEngineResponse:
            return None

    async def run(self, on_start: Heard, on_first_token: Heard = _nobody) -> None:
        """Wait for the slot, and relay the answer to its end. Raises PoolError, EngineError or
        ClientStalled.

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
                self.is_broken = True
                slot.usage_known(NO_TOKENS)
                slot.replica_failed(is_at_fault=isinstance(error, ReplicaUnreachable))
                raise
            except asyncio.CancelledError:
                self._note_cancelled()
                raise
            slot.usage_known(self.counted())
            slot.token_received()

    def _note_cancelled(self) -> None:
        if self.has_lost:
            self.slot.hedge_lost()
            return
        self.slot.usage_known(self.counted())
        if self._asked.interrupts.reason in ENGINE_SILENT:
            self.slot.replica_failed()

    async def _work(self, on_first_token: Heard) -> None:
        asked, record = self._asked, self.slot.replica.record
        deployment = deployment_of(asked.admitted.places, self.slot)
        timeouts, request_id = deployment.timeouts, asked.conversation.request_id
        request = write(
            asked.job.work,
            served_name=deployment.served_name,
            capabilities=record.capabilities,
            cache_salt=asked.admitted.cache_salt,
            request_id=request_id,
            text_guard=record.text_guard,
        )
        self.relay = relay = self._new_relay(request, timeouts.gap_seconds)
        # What is not streamed sends its first byte at its end: only the total bounds it.
        if request.streams:
            asked.interrupts.expect("first_byte", timeouts.first_byte_seconds)
        with asked.trace.engine_call() as traceparent:
            async with asked.client.call(
                record.url.rstrip("/") + request.path,
                request.body,
                _engine_headers(request_id, traceparent),
                connect_seconds=timeouts.connect_seconds,
            ) as answer:
                status = await answer.status()
                if status != 200:
                    raise error_of(status, await _words(answer))
                first_token = partial(self._first_token, on_first_token)
                await relay.run(answer, first_token, self.slot.vacate)

    def _new_relay(self, request: EngineHttpRequest, gap_seconds: float) -> Relay:
        asked = self._asked
        return Relay(
            request.reading,
            asked.job.dialect.rendering(asked.job, asked.conversation.request_id),
            asked.conversation,
            asked.interrupts,
            organization_id=asked.admitted.slot_request.organization_id,
            finishing=asked.finishing,
            here_bytes_max=asked.job.here_bytes_max,
            gap_seconds=gap_seconds,
            observe_gap=asked.observe_gap,
        )

    def _first_token(self, on_first_token: Heard) -> None:
        self.slot.token_received()
        on_first_token(self)


def _engine_headers(request_id: str, traceparent: str | None) -> dict[str, str]:
    """Return all that an engine hears besides the body: nothing of the client's headers."""
    # vLLM makes its own ids from this one, so that its log lines can be found by ours.
    headers = {"x-request-id": request_id}
    if traceparent is not None:
        headers["traceparent"] = traceparent
    return headers


async def _words(answer: ReplicaResponse) -> bytes:
    """Return the beginning of what an engine says besides an answer."""
    words = b""
    while len(words) < TEXT_BYTES_MAX and (data := await answer.read()):
        words += data
    return words
