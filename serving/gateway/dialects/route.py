"""What chat and completions share: from a body to a job, and from events to an answer."""

import hashlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from serving.contract.prompt import bytes_of_prompt
from serving.contract.records import ModelRecord, Task
from serving.contract.units import Tier
from serving.engine.errors import ControlToken, PromptLength, Reason, RequestRejected
from serving.engine.request import AnswerFormat, EngineRequest, Feature, Operation, RequestGrammars
from serving.gateway.dialects import openai, refusals
from serving.gateway.dialects.decode import BodyDecoder, invalid
from serving.gateway.dialects.dialect import Job, Rendering
from serving.gateway.dialects.marking import unmarked_words
from serving.gateway.dialects.refusals import ContextExceeded
from serving.gateway.dialects.sampling import Sampling
from serving.gateway.dialects.schema_references import Schema
from serving.gateway.dialects.stream import Stream
from serving.gateway.dialects.whole import Whole
from serving.gateway.errors import ApiError, BadRequest

_encode = msgspec.json.Encoder().encode

Request = TypeVar("Request", bound=Sampling)


class Route(openai.OpenAIEnvelope, ABC, Generic[Request]):
    """A `Dialect` of OpenAI's."""

    name: ClassVar[str]
    path: ClassVar[str]
    task: ClassVar[Task] = "generate"
    operation: ClassVar[Operation]
    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]
    kind: ClassVar[type[Sampling]]
    prompt_field: ClassVar[str]

    def __init__(self) -> None:
        self._decode = BodyDecoder(self.kind)

    def decode(self, data: bytes) -> Any:
        """Return the body. Raises BadRequest."""
        return self._decode(data)

    def job(self, request: Request, *, body_bytes: int, model: ModelRecord) -> Job:
        """Check the request against its model and return its job. Raises BadRequest."""
        self.check(request, model)
        options = request.stream_options
        prompts, tier = self.prompt_count(request), self.tier(request)
        fields = self.engine_fields(request)
        encoded = _encode(fields)[:-1]
        is_chat = self.operation == "chat"
        work = EngineRequest(
            operation=self.operation,
            fields=(encoded,),
            is_streamed=bool(request.stream),
            may_call_tools=self.may_call_tools(request),
            feature=self.feature(request),
            choices=prompts * (request.n or 1),
            prompts=prompts,
            output_tokens_max=self._output_tokens(request, model),
            needs=self.needs(request),
            grammars=grammars_of(self.compiled_schemas(request)),
            answer_format=self.answer_format(request),
            tool_words=unmarked_words(fields.get("tools", [])),
        )
        return Job(
            dialect=self,
            model=model,
            model_name=request.model,
            work=work,
            wants_usage=bool(options and options.include_usage),
            body_bytes=body_bytes,
            prompt=bytes_of_prompt(
                encoded, texts=0 if is_chat else prompts, again=self.rewritten_bytes(request)
            ),
            asked_tokens=self.asked_output_tokens(request)[1],
            tier=tier or "default",
            body=tier,
        )

    def rendering(self, job: Job, request_id: str) -> Rendering:
        """Return how the answer is told."""
        id_ = self.id_prefix + request_id
        if job.work.is_streamed:
            return Stream(job, id_, self.chunk_object)
        return Whole(job, id_, self.whole_object)

    def refusal(self, refused: RequestRejected, job: Job) -> ApiError:
        """Return what is told of a job that the engine minds."""
        if isinstance(refused, ControlToken):
            return refusals.control_token(refused)
        if refused.reason != "context":
            return refusals.refused(refused.reason)
        return ContextExceeded(
            job.model.context_tokens,
            prompt=refused.prompt,
            asked_tokens=job.asked_tokens,
            param=self.prompt_field,
        )

    @abstractmethod
    def check(self, request: Request, model: ModelRecord) -> None:
        """Check what the types alone cannot. Raises BadRequest."""

    @abstractmethod
    def engine_fields(self, request: Request) -> dict[str, Any]:
        """Return what an engine is told, but for the fields that are the gateway's own."""

    @abstractmethod
    def asked_output_tokens(self, request: Request) -> tuple[str, int | None]:
        """Return how many tokens the client allows, under the name it used."""

    def tier(self, request: Request) -> Tier | None:
        """Return the tier that the request names."""
        return None

    def prompt_count(self, request: Request) -> int:
        """Return how many prompts the body carries."""
        return 1

    def known_prompt_tokens(self, request: Request) -> int:
        """Return the prompt's length where the client counted tokens itself, else 0."""
        return 0

    def rewritten_bytes(self, request: Request) -> int:
        """Return how many bytes of JSON a chat template writes anew, with blanks between."""
        return 0

    def has_schemas(self, request: Request) -> bool:
        """Tell whether the request brings JSON Schemas: what they cost is not in their length."""
        return False

    def needs(self, request: Request) -> dict[str, Reason]:
        """Return the features that the engine must have, and as what their lack is refused."""
        return {}

    def compiled_schemas(self, request: Request) -> dict[str, Schema]:
        """Return the schemas that an engine compiles, by their fields' names."""
        return {}

    def answer_format(self, request: Request) -> AnswerFormat | None:
        """Return what the answer is held to, if anything."""
        return None

    @abstractmethod
    def feature(self, request: Request) -> Feature:
        """Return what the request puts to work in an engine beside generating."""

    def may_call_tools(self, request: Request) -> bool:
        """Tell whether an engine parses the answer for tool calls."""
        return False

    def _output_tokens(self, request: Request, model: ModelRecord) -> int:
        """Return the `max_tokens` for the engine, which cuts it to what the context leaves."""
        name, asked = self.asked_output_tokens(request)
        known = self.known_prompt_tokens(request)
        if known + (asked or 1) > model.context_tokens:
            raise ContextExceeded(
                model.context_tokens,
                prompt=PromptLength(known, is_least=False) if known else None,
                asked_tokens=asked,
                param=self.prompt_field if known else name,
            )
        if asked is not None and asked > model.output_tokens_max:
            raise _beyond(name, model.output_tokens_max, asked)
        output_tokens = model.output_tokens_max if asked is None else asked
        if request.min_tokens is not None and request.min_tokens > output_tokens:
            raise invalid("min_tokens", f"at most {output_tokens}", request.min_tokens)
        return output_tokens


def grammars_of(schemas: dict[str, Schema]) -> RequestGrammars | None:
    """Return schemas as they are asked about."""
    if not schemas:
        return None
    texts = [_encode(schema) for schema in schemas.values()]
    digest = hashlib.sha256(b"\n".join(texts)).digest()
    return RequestGrammars(tuple(schemas), tuple(text.decode() for text in texts), digest)


def _beyond(name: str, tokens: int, asked: int) -> BadRequest:
    return invalid(name, f"this model gives at most {tokens} tokens", asked)
