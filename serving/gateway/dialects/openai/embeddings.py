"""`POST /v1/embeddings`: texts in, a vector for each out. Nothing is generated, nothing streams."""

from collections.abc import Iterable
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from serving.contract.prompt import bytes_of_prompt
from serving.contract.records import ModelRecord, Task
from serving.engine.embedding_parser import vector_of
from serving.engine.errors import InvalidEngineResponse, PromptLength, Reason, RequestRejected
from serving.engine.events import EngineEvent, PromptTokensDetails, TokenUsage
from serving.engine.request import EngineRequest
from serving.gateway.dialects import validation
from serving.gateway.dialects.base import HERE_BYTES_MAX, InferenceRequest, Renderer
from serving.gateway.dialects.openai import envelope
from serving.gateway.dialects.openai.chat_request import Label, StrictStruct
from serving.gateway.dialects.validation import StrictDecoder, invalid
from serving.gateway.errors import JSON, ApiError, BadRequest, Headers

_encode = msgspec.json.Encoder().encode

INPUTS_MAX = 2_048
"""What OpenAI takes in one request."""
NUMBERS_MAX = {"float": 2**20, "base64": 2**22}
"""In all vectors of an answer: 22 MB either way."""
TEXT_HERE_BYTES_MAX = 64 * 1024
"""Of an answer whose numbers are written as text, which takes ten times as long as base64."""

Encoding = Literal["float", "base64"]
Token = Annotated[int, Meta(ge=0, le=10**6)]
TokenIds = Annotated[list[Token], Meta(min_length=1, max_length=2**20)]
Input = str | Annotated[list[str | Token | TokenIds], Meta(min_length=1, max_length=2**20)]


AT_LEAST = "an input has at least one character"


class EmbeddingsRequest(StrictStruct, kw_only=True):
    """Every field that a client may send."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    input: Input
    dimensions: Annotated[int, Meta(ge=1, le=2**16)] | None = None
    encoding_format: Encoding | None = None
    user: Label | None = None


class EmbeddingsDialect(envelope.OpenAIEnvelope):
    """A `Dialect` of OpenAI's."""

    name: ClassVar[str] = "embeddings"
    path: ClassVar[str] = "/v1/embeddings"
    task: ClassVar[Task] = "embed"

    def __init__(self) -> None:
        self._decode = StrictDecoder(EmbeddingsRequest)

    def decode(self, data: bytes) -> Any:
        """Return the body. Raises BadRequest."""
        return self._decode(data)

    def has_schemas(self, request: EmbeddingsRequest) -> bool:
        """Tell that it brings none."""
        return False

    def inference(
        self, request: EmbeddingsRequest, *, body_bytes: int, model: ModelRecord
    ) -> InferenceRequest:
        """Check the body against its model and return the request that it is. Raises BadRequest."""
        encoding = request.encoding_format or "float"
        inputs = _count_inputs(request.input, model, encoding)
        fields: dict[str, Any] = {"input": request.input}
        needs: dict[str, Reason] = {}
        if request.dimensions is not None:
            _check_dimensions(request.dimensions, model)
            fields["dimensions"] = request.dimensions
            needs["dimensions"] = "dimensions"
        told = _encode(fields)[:-1]
        engine_request = EngineRequest(
            operation="embeddings",
            fields=(told,),
            is_streamed=False,
            may_call_tools=False,
            feature="plain",
            choices=0,
            prompts=inputs,
            output_tokens_max=0,
            needs=needs,
        )
        return InferenceRequest(
            dialect=self,
            model=model,
            model_name=request.model,
            engine_request=engine_request,
            include_usage=True,
            body_bytes=body_bytes,
            prompt=bytes_of_prompt(told, texts=inputs),
            requested_output_tokens=None,
            inline_bytes_max=HERE_BYTES_MAX if encoding == "base64" else TEXT_HERE_BYTES_MAX,
            echo=encoding,
        )

    def renderer(self, inference: InferenceRequest, request_id: str) -> Renderer:
        """Return how the answer is told."""
        return EmbeddingsRenderer(inference)

    def rejection(self, rejected: RequestRejected, inference: InferenceRequest) -> ApiError:
        """Return what is told of a request that the engine refuses."""
        if rejected.reason == "context":
            return _too_long(inference.model, "an input", rejected.prompt)
        # Whatever its words remind of, there are no tools, formats or messages here.
        return validation.refused("dimensions" if rejected.reason == "dimensions" else "other")


def _count_inputs(given: Input, model: ModelRecord, encoding: Encoding) -> int:
    """Return how many inputs there are: texts, or lists of token ids. Raises BadRequest."""
    if isinstance(given, str):
        if not given:
            raise invalid("input", AT_LEAST, "")
        return 1
    kinds = set(map(type, given))
    if len(kinds) > 1:
        raise invalid("input", "a list is all texts, all token ids or all lists of them")
    if kinds == {int}:
        _check_ids([cast("list[int]", given)], model, "input")
        return 1
    most = min(INPUTS_MAX, NUMBERS_MAX[encoding] // (model.dimensions or 1))
    if len(given) > most:
        wanted = f"at most {most:,} inputs for vectors of this model as {encoding}"
        raise invalid("input", f"{wanted}; you sent {len(given):,}")
    if kinds == {str}:
        if "" in given:
            raise invalid(f"input[{given.index('')}]", AT_LEAST, "")
    else:
        _check_ids(cast("list[list[int]]", given), model, "input[{}]")
    return len(given)


def _check_ids(lists: list[list[int]], model: ModelRecord, name: str) -> None:
    sizes = list(map(len, lists))
    for place, size in enumerate(sizes):
        if size > model.context_tokens:
            raise _too_long(model, name.format(place), PromptLength(size, is_least=False))
    if sum(sizes) > model.request_tokens_max:
        most = f"at most {model.request_tokens_max:,} tokens in all"
        raise invalid("input", f"{most}; you sent {sum(sizes):,}")
    if max(cast("Iterable[int]", chain.from_iterable(lists))) >= model.vocabulary_size:
        raise invalid("input", f"token ids are 0 to {model.vocabulary_size - 1}")


def _check_dimensions(dimensions: int, model: ModelRecord) -> None:
    if model.dimensions is not None and dimensions > model.dimensions:
        raise invalid("dimensions", f"this model gives at most {model.dimensions}", dimensions)


def _too_long(model: ModelRecord, name: str, size: PromptLength | None) -> BadRequest:
    known = "longer" if size is None else f"{size} tokens long"
    message = f"{model.context_tokens:,} tokens at most in each input; {name} is {known}."
    return BadRequest(message, code="context_length_exceeded", param="input")


class _Item(msgspec.Struct):
    object: str
    index: int
    embedding: str | list[float]


class _Usage(msgspec.Struct, omit_defaults=True):
    """Usage in OpenAI's words; what was cached only where there is any."""

    prompt_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | UnsetType = UNSET


class EmbeddingsRenderer:
    """The rendering of an answer: each vector is written anew as it comes."""

    headers: Headers = JSON

    def __init__(self, inference: InferenceRequest) -> None:
        self._model_name = inference.model_name
        self._is_base64 = inference.echo == "base64"
        self._parts = [b'{"object":"list","data":[']
        self._count = 0

    def render(self, events: list[EngineEvent]) -> bytes:
        """Add vectors to the answer. Raises InvalidEngineResponse."""
        for event in events:
            vector = vector_of(event)
            if vector.index != self._count:
                raise InvalidEngineResponse("a vector out of turn")
            embedding = vector.base64() if self._is_base64 else vector.numbers()
            if self._count:
                self._parts.append(b",")
            self._parts.append(_encode(_Item("embedding", self._count, embedding)))
            self._count += 1
        return b""

    def error_event(self, error: ApiError) -> bytes:
        """Return nothing: an answer begins at its end."""
        return b""

    def finish(self, tokens: TokenUsage) -> bytes:
        """Return the client's body."""
        cached = PromptTokensDetails(tokens.cached_input) if tokens.cached_input else UNSET
        usage = _encode(_Usage(tokens.input, tokens.input, cached))
        model = _encode(self._model_name)
        # Joined once: there may be much of it.
        self._parts.append(b'],"model":%b,"usage":%b}' % (model, usage))
        body = b"".join(self._parts)
        self._parts.clear()
        return body
