"""From a body's bytes to a request: here where that is quick, in a worker process where it may not
be.

No request holds the event loop for more than 5 ms. Measured on one core of a server: the worst
body of 32 KB takes 2 ms to be read, checked and written anew (a million token ids took 120, and
calls of tools 320 in 4 MB), and the worst schemas of 2 KB as long.

Two questions make a request: a body, and the record of the model that it names. A request's
fields for the engine come back as the payload.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from msgspec.structs import replace

from serving.contract.records import ModelRecord
from serving.gateway.dialects.base import Dialect, InferenceDialect, InferenceRequest
from serving.gateway.dialects.routes import DIALECTS
from serving.gateway.errors import (
    ApiError,
    BadRequest,
    PayloadTooLarge,
    ServiceUnavailable,
    TooManyQueuedRequests,
)
from serving.offload.pool import WORKER, OffloadBusy, OffloadPool, OffloadTimeout, TenantSemaphore
from serving.offload.process import WorkerDied, WorkerProcess
from serving.offload.worker import serve
from serving.pool.overload import Holder


@dataclass(frozen=True, slots=True)
class ParseJob:
    """The path of the route that a body came in by; the body itself is the payload."""

    path: str


@dataclass(frozen=True, slots=True)
class ParseModelName:
    """The body was read: the model it names."""

    model_name: str


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """What the client is to be told."""

    message: str
    code: str | None
    param: str | None
    quoted: str

    def error(self) -> BadRequest:
        """Return it as the error it was."""
        return BadRequest(self.message, code=self.code, param=self.param, quoted=self.quoted)


Question = ParseJob | ModelRecord
Reply = ParseModelName | InferenceRequest | ParseFailure


HERE_BYTES_MAX = 32 * 1024
"""Smaller than any model's bound on bodies."""
SMALL_BODY_BYTES = 2 * 1024
"""Up to here a body is read at once whatever it brings, schemas too."""

TOKEN_BYTES = 16
"""That a token of a prompt may take in a body: a text's rarely take six, a token id seven."""
BESIDE_PROMPT_BYTES = 1024 * 1024
BODY_BYTES_MAX = 16 * 1024 * 1024

PROCESSES = 2
SECONDS_MAX = 5.0
WAIT_SECONDS_MAX = 10.0
WAITING_MAX = 4_096
WAITING_OF_ONE_MAX = 256
"""Jobs, the one at work included. Bytes are bounded where bodies are held, time by the wait."""

FindModel = Callable[[str], ModelRecord]


def body_bytes_max(request_tokens: int) -> int:
    """Return how large a body may be for a model that takes so many tokens in one."""
    return min(BODY_BYTES_MAX, BESIDE_PROMPT_BYTES + TOKEN_BYTES * request_tokens)


class ParseOffload:
    """Makes jobs of bodies; keeps the processes that read the large ones."""

    def __init__(self) -> None:
        turns = TenantSemaphore(
            PROCESSES,
            waiting_max=WAITING_MAX,
            waiting_of_one_max=WAITING_OF_ONE_MAX,
            wait_seconds_max=WAIT_SECONDS_MAX,
        )
        self.pool = OffloadPool(
            (WORKER, "serving.gateway.parse_offload:serve_parse_jobs"),
            turns,
            seconds_max=SECONDS_MAX,
        )
        self.rejected = 0
        self.rejected_own = 0

    async def parse(
        self, dialect: Dialect, body: Sequence[bytes], holder: Holder, find: FindModel
    ) -> InferenceRequest:
        """Return the job of a body, which is in pieces.

        Raises ApiError, and whatever `find` raises for a model's name.
        """
        size = sum(map(len, body))
        if size <= HERE_BYTES_MAX:
            request = dialect.decode(body[0] if len(body) == 1 else b"".join(body))
            if size <= SMALL_BODY_BYTES or not dialect.has_schemas(request):
                return dialect.inference(request, body_bytes=size, model=find(request.model))
        try:
            async with self.pool.process(
                holder.organization_id, is_paying=holder.is_paying
            ) as process:
                return await _parse_in_worker(process, dialect, body, find)
        except OffloadBusy as busy:
            raise self._busy(is_own=busy.is_own) from None
        except OffloadTimeout:
            message = f"Your request could not be read within {SECONDS_MAX:.0f} seconds."
            raise BadRequest(message, code="request_too_complex") from None
        except WorkerDied:
            message = "Your request could not be read. Please try again."
            raise ServiceUnavailable(message, code="server_is_overloaded") from None

    def _busy(self, *, is_own: bool) -> ApiError:
        if is_own:
            self.rejected_own += 1
            return TooManyQueuedRequests(1, "large requests wait to be read")
        self.rejected += 1
        message = "Too many large requests are being read. Please try again."
        return ServiceUnavailable(message, code="server_is_overloaded")

    async def close(self) -> None:
        """End the processes."""
        await self.pool.close()


async def _parse_in_worker(
    process: WorkerProcess, dialect: Dialect, body: Sequence[bytes], find: FindModel
) -> InferenceRequest:
    named, _ = await process.ask(ParseJob(dialect.path), body)
    if isinstance(named, ParseFailure):
        raise named.error()
    model = find(named.model_name)
    if sum(map(len, body)) > (most := body_bytes_max(model.request_tokens_max)):
        raise PayloadTooLarge(most)
    inference, fields = await process.ask(model)
    if isinstance(inference, ParseFailure):
        raise inference.error()
    engine_request = replace(inference.engine_request, fields=tuple(fields))
    return replace(
        inference,
        dialect=cast(InferenceDialect, dialect),
        model=model,
        engine_request=engine_request,
    )


WORKER_SECONDS_MAX = 10.0
"""More than a gateway waits."""
WORKER_MEMORY_BYTES = 1024**3


class ParseJobRunner:
    """Holds the request between the two questions."""

    def __init__(self) -> None:
        self._dialect: Dialect
        self._request: Any = None
        self._size = 0

    def __call__(self, question: Question, payload: bytes) -> tuple[Reply, bytes]:
        """Answer one."""
        try:
            if isinstance(question, ParseJob):
                return self._read(question, payload), b""
            return self._job(question)
        except BadRequest as error:
            return ParseFailure(error.message, error.code, error.param, error.quoted), b""

    def _read(self, body: ParseJob, data: bytes) -> ParseModelName:
        self._dialect = DIALECTS[body.path]
        self._request, self._size = self._dialect.decode(data), len(data)
        return ParseModelName(self._request.model)

    def _job(self, model: ModelRecord) -> tuple[InferenceRequest, bytes]:
        request, self._request = self._request, None
        inference = self._dialect.inference(request, body_bytes=self._size, model=model)
        engine_request = replace(inference.engine_request, fields=())
        # Dialect and model are at home where the job goes.
        nothing: Any = None
        bare = replace(inference, engine_request=engine_request, dialect=nothing, model=nothing)
        return bare, b"".join(inference.engine_request.fields)


def serve_parse_jobs() -> None:
    """Read bodies in a worker process, until the gateway is gone."""
    serve(ParseJobRunner(), seconds_max=WORKER_SECONDS_MAX, memory_bytes=WORKER_MEMORY_BYTES)
