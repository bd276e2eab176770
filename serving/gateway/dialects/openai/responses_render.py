"""The answer of Responses: its items and its usage, whole, or as typed events numbered from 0."""

import time
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from serving.contract.units import Tier
from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import EngineEvent, TokenUsage
from serving.gateway.dialects.accumulate import (
    AnswerAccumulator,
    BlockEvent,
    ContentBlock,
    ContentBlockSplitter,
    content_blocks_of,
)
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.dialects.openai import envelope
from serving.gateway.dialects.openai.render import HEADERS
from serving.gateway.dialects.openai.responses_request import ReasoningEcho, RequestEcho
from serving.gateway.dialects.openai.responses_tools import CalledTool, input_of
from serving.gateway.errors import JSON, ApiError, Headers

Status = Literal["in_progress", "completed", "incomplete"]
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why an answer is not complete, by how the engine ended."""
_encode = msgspec.json.Encoder().encode


class ResponseOutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """What the model says."""

    text: str = ""
    annotations: list[Any] = []
    logprobs: list[msgspec.Raw] = []


class ResponseRefusal(msgspec.Struct, tag_field="type", tag="refusal"):
    """What the model says instead of an answer."""

    refusal: str = ""


class ResponseReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """What the model thinks."""

    text: str = ""


class ResponseOutputMessage(msgspec.Struct, tag_field="type", tag="message"):
    """A message of the model."""

    id: str
    status: Status
    content: list[ResponseOutputText | ResponseRefusal]
    role: str = "assistant"


class ResponseFunctionCall(msgspec.Struct, tag_field="type", tag="function_call"):
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


class ResponseReasoningItem(msgspec.Struct, tag_field="type", tag="reasoning"):
    """The model's thoughts, as they are."""

    id: str
    status: Status
    content: list[ResponseReasoningText]
    summary: list[Any] = []


Part = ResponseOutputText | ResponseRefusal | ResponseReasoningText
Item = ResponseOutputMessage | ResponseFunctionCall | CustomToolCall | ResponseReasoningItem


class ResponsesInputDetails(msgspec.Struct):
    """Of the input: what was read from the prefix cache. Writing to it costs nothing extra."""

    cached_tokens: int
    cache_write_tokens: int = 0


class ResponsesOutputDetails(msgspec.Struct):
    """Of the output: what was thought."""

    reasoning_tokens: int


class ResponsesUsage(msgspec.Struct):
    """What was metered."""

    input_tokens: int
    input_tokens_details: ResponsesInputDetails
    output_tokens: int
    output_tokens_details: ResponsesOutputDetails
    total_tokens: int


class IncompleteDetails(msgspec.Struct):
    """Why an answer is not complete."""

    reason: str


class ResponseObject(msgspec.Struct, kw_only=True):
    """The whole of an answer, with what was asked."""

    id: str
    object: str = "response"
    created_at: int
    status: Status
    background: bool = False
    error: None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: msgspec.Raw
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[Item] = []
    parallel_tool_calls: bool
    previous_response_id: None = None
    prompt_cache_key: str | None
    reasoning: ReasoningEcho
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
    usage: ResponsesUsage | None = None
    user: str | None


def begun(inference: InferenceRequest, request_id: str, created: int) -> ResponseObject:
    """Return the answer before anything was said: what was asked."""
    asked: RequestEcho = inference.echo
    repeated = msgspec.structs.asdict(asked)
    del repeated["called"], repeated["headers"]
    return ResponseObject(
        id=f"resp_{request_id}",
        created_at=created,
        status="in_progress",
        model=inference.model_name,
        service_tier=inference.tier,
        **repeated,
    )


def ended(
    response: ResponseObject, items: list[Item], finish_reason: str | None, tokens: TokenUsage
) -> ResponseObject:
    """Return the answer at its end."""
    reason = INCOMPLETE.get(finish_reason or "")
    return msgspec.structs.replace(
        response,
        status="completed" if reason is None else "incomplete",
        incomplete_details=None if reason is None else IncompleteDetails(reason),
        output=items,
        usage=usage_of(tokens),
    )


def usage_of(tokens: TokenUsage) -> ResponsesUsage:
    """Say what was metered."""
    return ResponsesUsage(
        input_tokens=tokens.input,
        input_tokens_details=ResponsesInputDetails(tokens.cached_input),
        output_tokens=tokens.output,
        output_tokens_details=ResponsesOutputDetails(tokens.reasoning),
        total_tokens=tokens.input + tokens.output,
    )


def part_of(passage: ContentBlock) -> Part:
    """Return a passage of text as the part of its item."""
    if passage.kind == "reasoning":
        return ResponseReasoningText(passage.text)
    if passage.kind == "refusal":
        return ResponseRefusal(passage.text)
    return ResponseOutputText(passage.text, logprobs=passage.logprobs)


class Items:
    """Makes items of the passages of one answer. Tools in `called` are the client's by another
    name, or take a text."""

    def __init__(self, request_id: str, called: Mapping[str, CalledTool]) -> None:
        self._request_id = request_id
        self._called = called

    def id_of(self, passage: ContentBlock) -> str:
        """Return the id of a passage's item."""
        prefix = {"reasoning": "rs", "call": "fc"}.get(passage.kind, "msg")
        if self.is_custom(passage):
            prefix = "ctc"
        return f"{prefix}_{self._request_id}_{passage.index}"

    def called(self, passage: ContentBlock) -> CalledTool:
        """Return how the client calls the tool of a call."""
        return self._called.get(passage.name) or CalledTool(passage.name, None, is_custom=False)

    def is_custom(self, passage: ContentBlock) -> bool:
        """Tell whether a passage calls a custom tool."""
        return passage.kind == "call" and self.called(passage).is_custom

    def item_of(self, passage: ContentBlock, status: Status, parts: list[Any]) -> Item:
        """Return a passage as an item of an answer; `parts` are its text's, once it has one."""
        id_ = self.id_of(passage)
        if passage.kind == "call":
            return self._call(id_, passage, status)
        if passage.kind == "reasoning":
            return ResponseReasoningItem(id_, status, parts)
        return ResponseOutputMessage(id_, status, parts)

    def items_of(self, passages: list[ContentBlock], finish_reason: str | None) -> list[Item]:
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

    def _call(
        self, id_: str, passage: ContentBlock, status: Status
    ) -> ResponseFunctionCall | CustomToolCall:
        name, namespace, is_custom = self.called(passage)
        text, of = passage.text, UNSET if namespace is None else namespace
        if is_custom:
            return CustomToolCall(id_, passage.id, name, input_of(text), status, of)
        return ResponseFunctionCall(id_, passage.id, name, text, status, of)


class ResponseRenderer:
    """The rendering of a request that asked for a whole answer."""

    def __init__(self, inference: InferenceRequest, request_id: str) -> None:
        self.headers: Headers = (*JSON, *inference.echo.headers)
        self._begun = begun(inference, request_id, 0)
        self._items = Items(request_id, inference.echo.called)
        self._assembly = AnswerAccumulator(inference.engine_request.choices)

    def render(self, events: list[EngineEvent]) -> bytes:
        """Add events to the answer. Raises InvalidEngineResponse."""
        self._assembly.add(events)
        return b""

    def error_event(self, error: ApiError) -> bytes:
        """Return nothing: a whole answer begins at its end."""
        return b""

    def finish(self, tokens: TokenUsage) -> bytes:
        """Return the client's body. Raises InvalidEngineResponse when there is no ending."""
        choice = self._assembly.chat()[0]
        items = self._items.items_of(content_blocks_of(choice), choice.finish_reason)
        response = msgspec.structs.replace(self._begun, created_at=self._assembly.created)
        return _encode(ended(response, items, choice.finish_reason, tokens))


PARTS = {"content": "output_text", "refusal": "refusal", "reasoning": "reasoning_text"}
EMPTY: dict[str, Part] = {
    "content": ResponseOutputText(),
    "refusal": ResponseRefusal(),
    "reasoning": ResponseReasoningText(),
}


class ResponseEvent(msgspec.Struct):
    """An event about the whole answer."""

    type: str
    sequence_number: int
    response: ResponseObject


class OutputItemEvent(msgspec.Struct):
    """An event about an item."""

    type: str
    sequence_number: int
    output_index: int
    item: Item


class ContentPartEvent(msgspec.Struct):
    """An event about the one part of an item."""

    type: str
    sequence_number: int
    item_id: str
    output_index: int
    part: Part
    content_index: int = 0


class OfInput(msgspec.Struct):
    """An event about the text of a custom tool's call."""

    type: str
    sequence_number: int
    item_id: str
    output_index: int
    delta: str | UnsetType = UNSET
    input: str | UnsetType = UNSET


class ResponseErrorEvent(msgspec.Struct):
    """An error that ends a stream, told twice: as an event of its own, and as other routes do."""

    type: str
    sequence_number: int
    code: str | None
    message: str
    param: str | None
    error: envelope.OpenAIErrorDetail


class ResponseStreamRenderer:
    """The rendering of a request that asked for a stream."""

    def __init__(self, inference: InferenceRequest, request_id: str) -> None:
        self.headers: Headers = (*HEADERS, *inference.echo.headers)
        self._items = Items(request_id, inference.echo.called)
        self._response = begun(inference, request_id, int(time.time()))
        self._passages = ContentBlockSplitter()
        self._number = 0
        self._head = b""
        self._tail = b""

    def render(self, events: list[EngineEvent]) -> bytes:
        """Return what these events are to the client. Raises InvalidEngineResponse."""
        told = [] if self._number else self._opening()
        for event in events:
            for part in event.chunk().choices:
                if part.index:
                    raise InvalidEngineResponse("a choice that nobody asked for")
                told += [self._tell(step) for step in self._passages.read(part)]
        return b"".join(told)

    def finish(self, tokens: TokenUsage) -> bytes:
        """Return the last events. Raises InvalidEngineResponse when there was no ending."""
        told = [] if self._number else self._opening()
        told += [self._tell(step) for step in self._passages.finish()]
        reason = self._passages.finish_reason
        items = self._items.items_of(self._passages.closed, reason)
        last = ended(self._response, items, reason, tokens)
        return b"".join(told) + self._of_response(f"response.{last.status}", last)

    def error_event(self, error: ApiError) -> bytes:
        """Return an error as the end of the stream."""
        detail = envelope.detail_of(error)
        return self._event(
            ResponseErrorEvent(
                "error", self._next(), error.code, error.message, error.param, detail
            )
        )

    def _opening(self) -> list[bytes]:
        created = self._of_response("response.created", self._response)
        return [created, self._of_response("response.in_progress", self._response)]

    def _tell(self, step: BlockEvent) -> bytes:
        if step.action == "go_on":
            return b"" if self._items.is_custom(step.block) else self._delta(step)
        return self._open(step.block) if step.action == "open" else self._close(step.block)

    def _open(self, passage: ContentBlock) -> bytes:
        self._set_frame(passage)
        item = self._items.item_of(passage, "in_progress", [])
        added = self._of_item("response.output_item.added", passage, item)
        if passage.kind == "call":
            return added
        return added + self._of_part("response.content_part.added", passage, EMPTY[passage.kind])

    def _close(self, passage: ContentBlock) -> bytes:
        reason = self._passages.finish_reason
        status: Status = "incomplete" if reason in INCOMPLETE else "completed"
        parts: list[Part] = []
        if self._items.is_custom(passage):
            told = self._custom_input(passage)
        elif passage.kind == "call":
            told = self._done(passage, "function_call_arguments", "arguments")
        else:
            parts = [part_of(passage)]
            text = "refusal" if passage.kind == "refusal" else "text"
            told = self._done(passage, PARTS[passage.kind], text)
            told += self._of_part("response.content_part.done", passage, parts[0])
        item = self._items.item_of(passage, status, parts)
        return told + self._of_item("response.output_item.done", passage, item)

    def _set_frame(self, passage: ContentBlock) -> None:
        """Write once what all deltas of a passage share."""
        is_call = passage.kind == "call"
        kind = f"response.{'function_call_arguments' if is_call else PARTS[passage.kind]}.delta"
        item_id = self._items.id_of(passage)
        part = "" if is_call else '"content_index":0,'
        self._head = (
            f'event: {kind}\ndata: {{"type":"{kind}","item_id":"{item_id}",'
            f'"output_index":{passage.index},{part}"delta":'
        ).encode()

    def _delta(self, step: BlockEvent) -> bytes:
        logprobs = b""
        if step.block.kind == "content":
            logprobs = b',"logprobs":' + (_encode(step.logprobs) if step.logprobs else b"[]")
        number = b',"sequence_number":%d}\n\n' % self._next()
        return self._head + _encode(step.text) + logprobs + number

    def _done(self, passage: ContentBlock, of: str, name: str) -> bytes:
        told = {
            "type": f"response.{of}.done",
            "sequence_number": self._next(),
            "item_id": self._items.id_of(passage),
            "output_index": passage.index,
            name: passage.text,
        }
        if passage.kind == "call":
            told["name"] = self._items.called(passage).name
        else:
            told["content_index"] = 0
        if passage.kind == "content":
            told["logprobs"] = passage.logprobs
        return b"event: %b\ndata: %b\n\n" % (str(told["type"]).encode(), _encode(told))

    def _custom_input(self, passage: ContentBlock) -> bytes:
        """Tell the text of a custom tool, in one: it is known once its arguments can be read."""
        text = input_of(passage.text)
        item_id, place = self._items.id_of(passage), passage.index
        kind = "response.custom_tool_call_input"
        delta = OfInput(f"{kind}.delta", self._next(), item_id, place, delta=text)
        return self._event(delta) + self._event(
            OfInput(f"{kind}.done", self._next(), item_id, place, input=text)
        )

    def _of_response(self, kind: str, response: ResponseObject) -> bytes:
        return self._event(ResponseEvent(kind, self._next(), response))

    def _of_item(self, kind: str, passage: ContentBlock, item: Item) -> bytes:
        return self._event(OutputItemEvent(kind, self._next(), passage.index, item))

    def _of_part(self, kind: str, passage: ContentBlock, part: Part) -> bytes:
        item_id = self._items.id_of(passage)
        return self._event(ContentPartEvent(kind, self._next(), item_id, passage.index, part))

    def _event(
        self,
        event: ResponseEvent | OutputItemEvent | ContentPartEvent | OfInput | ResponseErrorEvent,
    ) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (event.type.encode(), _encode(event))

    def _next(self) -> int:
        number, self._number = self._number, self._number + 1
        return number
