"""An answer of Responses: its items, its usage, and the whole of it."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from serving.contract.units import Tier
from serving.engine.events import EngineEvent, TokenUsage
from serving.gateway.dialects.assembly import Assembly
from serving.gateway.dialects.dialect import Job
from serving.gateway.dialects.passages import Passage, passages_of
from serving.gateway.dialects.responses.asked import Asked, ReasoningTold
from serving.gateway.dialects.responses.tools import CalledTool, input_of
from serving.gateway.errors import JSON, ApiError, Headers

Status = Literal["in_progress", "completed", "incomplete"]
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why an answer is not complete, by how the engine ended."""
_encode = msgspec.json.Encoder().encode


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """What the model says."""

    text: str = ""
    annotations: list[Any] = []
    logprobs: list[msgspec.Raw] = []


class Refusal(msgspec.Struct, tag_field="type", tag="refusal"):
    """What the model says instead of an answer."""

    refusal: str = ""


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """What the model thinks."""

    text: str = ""


class OutputMessage(msgspec.Struct, tag_field="type", tag="message"):
    """A message of the model."""

    id: str
    status: Status
    content: list[OutputText | Refusal]
    role: str = "assistant"


class FunctionCall(msgspec.Struct, tag_field="type", tag="function_call"):
    """A call of a function."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: Status
    namespace: str | UnsetType = UNSET


class CustomToolCall(msgspec.Struct, tag_field="type", tag="custom_tool_call"):
    """A call of a custom tool."""

    id: str
    call_id: str
    name: str
    input: str
    status: Status
    namespace: str | UnsetType = UNSET


class ReasoningItem(msgspec.Struct, tag_field="type", tag="reasoning"):
    """The model's thoughts, as they are."""

    id: str
    status: Status
    content: list[ReasoningText]
    summary: list[Any] = []


Part = OutputText | Refusal | ReasoningText
Item = OutputMessage | FunctionCall | CustomToolCall | ReasoningItem


class InputDetails(msgspec.Struct):
    """Of the input: what was read from the prefix cache. Writing to it costs nothing extra."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """Of the output: what was thought."""

    reasoning_tokens: int


class Usage(msgspec.Struct):
    """What was metered."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Incomplete(msgspec.Struct):
    """Why an answer is not complete."""

    reason: str


class Response(msgspec.Struct, kw_only=True):
    """The whole of an answer, with what was asked."""

    id: str
    object: str = "response"
    created_at: int
    status: Status
    background: bool = False
    error: None = None
    incomplete_details: Incomplete | None = None
    instructions: msgspec.Raw
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[Item] = []
    parallel_tool_calls: bool
    previous_response_id: None = None
    prompt_cache_key: str | None
    reasoning: ReasoningTold
    safety_identifier: str | None
    service_tier: Tier
    store: bool = False
    temperature: float | None
    text: msgspec.Raw
    tool_choice: msgspec.Raw
    tools: msgspec.Raw
    top_logprobs: int
    top_p: float | None
    truncation: str = "disabled"
    usage: Usage | None = None
    user: str | None


def begun(job: Job, request_id: str, created: int) -> Response:
    """Return the answer before anything was said: what was asked."""
    asked: Asked = job.body
    repeated = msgspec.structs.asdict(asked)
    del repeated["called"], repeated["headers"]
    return Response(
        id=f"resp_{request_id}",
        created_at=created,
        status="in_progress",
        model=job.model_name,
        service_tier=job.tier,
        **repeated,
    )


def ended(
    response: Response, items: list[Item], finish_reason: str | None, tokens: TokenUsage
) -> Response:
    """Return the answer at its end."""
    reason = INCOMPLETE.get(finish_reason or "")
    return msgspec.structs.replace(
        response,
        status="completed" if reason is None else "incomplete",
        incomplete_details=None if reason is None else Incomplete(reason),
        output=items,
        usage=usage_of(tokens),
    )


def usage_of(tokens: TokenUsage) -> Usage:
    """Say what was metered."""
    return Usage(
        input_tokens=tokens.input,
        input_tokens_details=InputDetails(tokens.cached_input),
        output_tokens=tokens.output,
        output_tokens_details=OutputDetails(tokens.reasoning),
        total_tokens=tokens.input + tokens.output,
    )


def part_of(passage: Passage) -> Part:
    """Return a passage of text as the part of its item."""
    if passage.kind == "reasoning":
        return ReasoningText(passage.text)
    if passage.kind == "refusal":
        return Refusal(passage.text)
    return OutputText(passage.text, logprobs=passage.logprobs)


class Items:
    """Makes items of the passages of one answer. Tools in `called` are the client's by another
    name, or take a text."""

    def __init__(self, request_id: str, called: Mapping[str, CalledTool]) -> None:
        self._request_id = request_id
        self._called = called

    def id_of(self, passage: Passage) -> str:
        """Return the id of a passage's item."""
        prefix = {"reasoning": "rs", "call": "fc"}.get(passage.kind, "msg")
        if self.is_custom(passage):
            prefix = "ctc"
        return f"{prefix}_{self._request_id}_{passage.place}"

    def called(self, passage: Passage) -> CalledTool:
        """Return how the client calls the tool of a call."""
        return self._called.get(passage.name) or CalledTool(passage.name, None, is_custom=False)

    def is_custom(self, passage: Passage) -> bool:
        """Tell whether a passage calls a custom tool."""
        return passage.kind == "call" and self.called(passage).is_custom

    def item_of(self, passage: Passage, status: Status, parts: list[Any]) -> Item:
        """Return a passage as an item of an answer; `parts` are its text's, once it has one."""
        id_ = self.id_of(passage)
        if passage.kind == "call":
            return self._call(id_, passage, status)
        if passage.kind == "reasoning":
            return ReasoningItem(id_, status, parts)
        return OutputMessage(id_, status, parts)

    def items_of(self, passages: list[Passage], finish_reason: str | None) -> list[Item]:
        """Return the items of an answer that is over: of one cut short the last is incomplete."""
        last = len(passages) - 1
        return [
            self.item_of(
                passage,
                "incomplete" if place == last and finish_reason in INCOMPLETE else "completed",
                [part_of(passage)],
            )
            for place, passage in enumerate(passages)
        ]

    def _call(self, id_: str, passage: Passage, status: Status) -> FunctionCall | CustomToolCall:
        name, namespace, is_custom = self.called(passage)
        text, of = passage.text, UNSET if namespace is None else namespace
        if is_custom:
            return CustomToolCall(id_, passage.id, name, input_of(text), status, of)
        return FunctionCall(id_, passage.id, name, text, status, of)


class WholeResponse:
    """The rendering of a request that asked for a whole answer."""

    def __init__(self, job: Job, request_id: str) -> None:
        self.headers: Headers = (*JSON, *job.body.headers)
        self._begun = begun(job, request_id, 0)
        self._items = Items(request_id, job.body.called)
        self._assembly = Assembly(job.work.choices)

    def take(self, events: list[EngineEvent]) -> bytes:
        """Add events to the answer. Raises AnswerBroken."""
        self._assembly.add(events)
        return b""

    def error_event(self, error: ApiError) -> bytes:
        """Return nothing: a whole answer begins at its end."""
        return b""

    def end(self, tokens: TokenUsage) -> bytes:
        """Return the client's body. Raises AnswerBroken when there is no ending."""
        choice = self._assembly.chat()[0]
        items = self._items.items_of(passages_of(choice), choice.finish_reason)
        response = msgspec.structs.replace(self._begun, created_at=self._assembly.created)
        return _encode(ended(response, items, choice.finish_reason, tokens))
