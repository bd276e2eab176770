"""A client's language: the way in for its bodies, the way out for answers and errors."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from serving.contract.price import Schedule, worst_case_nanos
from serving.contract.prompt import PromptBound, PromptBytes
from serving.contract.records import ModelRecord, Task
from serving.contract.units import Tier
from serving.engine.errors import RequestRejected
from serving.engine.events import EngineEvent, TokenUsage
from serving.engine.request import EngineRequest
from serving.gateway.errors import ApiError, Headers
from serving.limits.gcra import LimitStatus

HERE_BYTES_MAX = 256 * 1024
"""Of an engine's answer that is told whole: up to here the client's body is made on the loop, in a
millisecond. To hand less to a process would cost the loop more."""


class InferenceRequest(msgspec.Struct, frozen=True):
    """One request, ready to be admitted: the work for an engine and what the client wants to see.

    `model_name` is what the client called the model, `body_bytes` how long its body was, `prompt`
    what an engine is told of the prompt, `requested_output_tokens` what the client asked for,
    `tier` how urgent it is, `inline_bytes_max` up to which length a whole answer is made on the
    loop, and `echo` what of its body the answer repeats.
    """

    dialect: "InferenceDialect"
    model: ModelRecord
    model_name: str
    engine_request: EngineRequest
    include_usage: bool
    body_bytes: int
    prompt: PromptBytes
    requested_output_tokens: int | None
    tier: Tier = "default"
    inline_bytes_max: int = HERE_BYTES_MAX
    echo: Any = None

    @property
    def prompt_bytes(self) -> int:
        """Return how many bytes an engine is told of the prompts."""
        return sum(map(len, self.engine_request.fields))

    @property
    def sequences(self) -> int:
        """How many slots it takes: one for each sequence."""
        return max(1, self.engine_request.choices)

    def input_tokens_max(self, bound: PromptBound) -> int:
        """Return how many tokens the prompts have at most on engines of which so much is known."""
        return min(
            bound.tokens_max(self.prompt), self.model.context_tokens * self.engine_request.prompts
        )

    def worst_case_nanos(self, schedule: Schedule, input_tokens_max: int) -> int:
        """Return the most that the request can cost, in the dearest band it can reach."""
        return worst_case_nanos(
            schedule,
            input_tokens_max=input_tokens_max,
            output_tokens_max=max(1, self.engine_request.output_tokens_max),
            choices=self.engine_request.choices,
        )

    def bounded_usage(self, tokens: TokenUsage, input_tokens_max: int) -> TokenUsage:
        """Return what an engine says the request took, and no more than was asked of it."""
        return tokens.at_most(input=input_tokens_max, output=self.output_tokens_max)

    @property
    def output_tokens_max(self) -> int:
        """How many tokens all choices make at most: to give back a prompt alone, an engine makes a
        token for each too."""
        request = self.engine_request
        return max(1, request.output_tokens_max) * request.choices


class ErrorReply(NamedTuple):
    """An error as the answer: its status and body."""

    status: int
    body: bytes


class Renderer(Protocol):
    """One answer on its way out; `headers` go before the first byte of it."""

    headers: Headers

    def render(self, events: list[EngineEvent]) -> bytes:
        """Return what these events are to the client. Raises InvalidEngineResponse."""

    def finish(self, tokens: TokenUsage) -> bytes:
        """Return what follows once usage is durable. Raises InvalidEngineResponse."""

    def error_event(self, error: ApiError) -> bytes:
        """Return an error as the end of an answer that had begun."""


class Envelope(Protocol):
    """What stands around an answer in a language."""

    id_headers: ClassVar[tuple[bytes, ...]]
    """Where its clients look for the request's id."""

    def error_reply(self, error: ApiError, request_id: str) -> ErrorReply:
        """Return an error as the answer."""

    def limit_headers(self, statuses: Sequence[LimitStatus], now: datetime) -> Headers:
        """Return how the caller's rate limits stand."""

    def model_list(self, offers: Sequence[tuple[str, ModelRecord]]) -> bytes:
        """Return the models that may be called, each under a name that it answers to."""

    def model_card(self, name: str, model: ModelRecord) -> bytes:
        """Return one of them."""


class Dialect(Envelope, Protocol):
    """The language of a route that is posted to."""

    name: ClassVar[str]
    """The endpoint in usage events."""
    path: ClassVar[str]
    task: ClassVar[Task]
    """What its models are for."""

    def decode(self, data: bytes) -> Any:
        """Return the body. Raises BadRequest."""

    def has_schemas(self, request: Any) -> bool:
        """Tell whether the request brings JSON Schemas: what they cost is not in their length."""

    def inference(self, request: Any, *, body_bytes: int, model: ModelRecord) -> InferenceRequest:
        """Check the body against its model and return the request that it is. Raises BadRequest."""

    def rejection(self, rejected: RequestRejected, inference: InferenceRequest) -> ApiError:
        """Return what is told of a request that the engine refuses."""


class InferenceDialect(Dialect, Protocol):
    """The language of a route that has an engine make something: metered, and paid for."""

    def renderer(self, inference: InferenceRequest, request_id: str) -> Renderer:
        """Return how the answer is told."""


class TokenCountDialect(Dialect, Protocol):
    """The language of a route that counts the tokens of a prompt, which is charged to nobody."""

    def counted(self, tokens: int) -> bytes:
        """Return the answer."""
