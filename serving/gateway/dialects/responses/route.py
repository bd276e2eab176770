"""`POST /v1/responses`."""

import re
from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from serving.contract.records import ModelRecord, Task
from serving.engine.errors import RequestRejected
from serving.gateway.dialects import openai
from serving.gateway.dialects.chat import Chat
from serving.gateway.dialects.decode import BodyDecoder
from serving.gateway.dialects.dialect import Job, Rendering
from serving.gateway.dialects.refusals import Names, renamed, with_names
from serving.gateway.dialects.responses.answer import WholeResponse
from serving.gateway.dialects.responses.asked import asked_of
from serving.gateway.dialects.responses.items import read_items
from serving.gateway.dialects.responses.lowering import lower
from serving.gateway.dialects.responses.request import ResponsesRequest, check
from serving.gateway.dialects.responses.stream import StreamedResponse
from serving.gateway.dialects.responses.tools import read_tools
from serving.gateway.errors import ApiError, BadRequest

NAMES: Names = (
    (re.compile(r"^messages"), "input"),
    (re.compile(r"^max_tokens"), "max_output_tokens"),
    (re.compile(r"^logprobs"), "include"),
    (re.compile(r"^response_format(\.json_schema)?"), "text.format"),
)
_TOOL = re.compile(r"^tools\[(\d+)\](\.function)?")


class Responses(openai.OpenAIEnvelope):
    """A dialect that is lowered to chat."""

    name: ClassVar[str] = "responses"
    path: ClassVar[str] = "/v1/responses"
    task: ClassVar[Task] = "generate"

    def __init__(self) -> None:
        self._decode = BodyDecoder(ResponsesRequest)
        self._chat = Chat()

    def decode(self, data: bytes) -> Any:
        """Return the body, its items read. Raises BadRequest."""
        request: Any = self._decode(data)
        check(request)
        read: dict[str, Any] = {"tools": read_tools(request.tools or ())}
        if isinstance(request.input, list):
            read["input"] = read_items(request.input)
        return msgspec.structs.replace(request, **read)

    def has_schemas(self, request: ResponsesRequest) -> bool:
        """Tell whether the request brings JSON Schemas."""
        tools: Any = request.tools
        return bool(tools.offered) or request.text is not None

    def job(self, request: ResponsesRequest, *, body_bytes: int, model: ModelRecord) -> Job:
        """Check the request against its model and return its job. Raises BadRequest."""
        items: Any = request.input if isinstance(request.input, list) else []
        tools: Any = request.tools
        names = (*NAMES, (_TOOL, lambda found: tools.offered[int(found[1])].place))
        try:
            lowered = lower(request, items, tools)
            job = self._chat.job(lowered, body_bytes=body_bytes, model=model)
        except BadRequest as error:
            raise renamed(error, names) from None
        work = with_names(job.work, names)
        return replace(job, dialect=self, work=work, body=asked_of(request, tools))

    def rendering(self, job: Job, request_id: str) -> Rendering:
        """Return how the answer is told."""
        return (StreamedResponse if job.work.is_streamed else WholeResponse)(job, request_id)

    def refusal(self, refused: RequestRejected, job: Job) -> ApiError:
        """Return what is told of a job that the engine minds."""
        return renamed(self._chat.refusal(refused, job), NAMES)
