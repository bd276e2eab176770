"""`POST /v1/messages`, and `/v1/messages/count_tokens`."""

import re
from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from serving.contract.records import ModelRecord, Task
from serving.engine.errors import RequestRejected
from serving.gateway.dialects.anthropic import errors
from serving.gateway.dialects.anthropic.answer import WholeMessage
from serving.gateway.dialects.anthropic.envelope import AnthropicEnvelope
from serving.gateway.dialects.anthropic.lowering import lower
from serving.gateway.dialects.anthropic.prefill import continued, continues
from serving.gateway.dialects.anthropic.request import CountRequest, MessagesRequest, check
from serving.gateway.dialects.anthropic.stream import StreamedMessage
from serving.gateway.dialects.chat import Chat
from serving.gateway.dialects.decode import BodyDecoder
from serving.gateway.dialects.dialect import Job, Rendering
from serving.gateway.dialects.refusals import ContextExceeded, Names, renamed, with_names
from serving.gateway.errors import ApiError, BadRequest

NAMES: Names = (
    (re.compile(r"^response_format(\.json_schema)?"), "output_config.format"),
    (re.compile(r"^(tools\[\d+\])\.function\.parameters"), r"\1.input_schema"),
)


class Lowered(AnthropicEnvelope):
    """What both routes share: a body that is lowered to chat, and errors in Anthropic's words."""

    task: ClassVar[Task] = "generate"
    kind: ClassVar[type[CountRequest]]

    def __init__(self) -> None:
        self._decode = BodyDecoder(self.kind)
        self._chat = Chat()

    def decode(self, data: bytes) -> Any:
        """Return the body. Raises BadRequest."""
        request: Any = self._decode(data)
        check(request)
        return request

    def has_schemas(self, request: CountRequest) -> bool:
        """Tell whether the request brings JSON Schemas."""
        return request.tools is not None or request.output_config is not None

    def job(self, request: CountRequest, *, body_bytes: int, model: ModelRecord) -> Job:
        """Check the request against its model and return its job. Raises BadRequest."""
        goes_on = continues(request)
        try:
            job = self._chat.job(lower(request), body_bytes=body_bytes, model=model)
        except BadRequest as error:
            raise _reworded(error) from None
        work = with_names(job.work, NAMES)
        return replace(job, work=continued(work) if goes_on else work)

    def refusal(self, refused: RequestRejected, job: Job) -> ApiError:
        """Return what is told of a job that the engine minds."""
        return _reworded(self._chat.refusal(refused, job))


def _reworded(error: ApiError) -> ApiError:
    if isinstance(error, ContextExceeded):
        return BadRequest(errors.context_exceeded(error), code=error.code, param=error.param)
    return renamed(error, NAMES)


class Messages(Lowered):
    """`POST /v1/messages`."""

    name: ClassVar[str] = "messages"
    path: ClassVar[str] = "/v1/messages"
    kind = MessagesRequest

    def job(self, request: CountRequest, *, body_bytes: int, model: ModelRecord) -> Job:
        """Check the request against its model and return its job. Raises BadRequest."""
        return replace(super().job(request, body_bytes=body_bytes, model=model), dialect=self)

    def rendering(self, job: Job, request_id: str) -> Rendering:
        """Return how the answer is told."""
        return (StreamedMessage if job.work.is_streamed else WholeMessage)(job, request_id)


class CountTokens(Lowered):
    """`POST /v1/messages/count_tokens`."""

    name: ClassVar[str] = "messages.count_tokens"
    path: ClassVar[str] = "/v1/messages/count_tokens"
    kind = CountRequest

    def counted(self, tokens: int) -> bytes:
        """Return the answer."""
        return msgspec.json.encode({"input_tokens": tokens})
