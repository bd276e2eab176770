"""An answer of Responses as it comes: typed events, numbered from 0."""

import time

import msgspec
from msgspec import UNSET, UnsetType

from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import EngineEvent, TokenUsage
from serving.gateway.dialects import openai
from serving.gateway.dialects.dialect import Job
from serving.gateway.dialects.passages import Passage, Passages, Step
from serving.gateway.dialects.responses import answer
from serving.gateway.dialects.responses.answer import Item, Part, Response
from serving.gateway.dialects.responses.tools import input_of
from serving.gateway.dialects.stream import HEADERS
from serving.gateway.errors import ApiError, Headers

_encode = msgspec.json.Encoder().encode
PARTS = {"content": "output_text", "refusal": "refusal", "reasoning": "reasoning_text"}
EMPTY: dict[str, Part] = {
    "content": answer.OutputText(),
    "refusal": answer.Refusal(),
    "reasoning": answer.ReasoningText(),
}


class OfResponse(msgspec.Struct):
    """An event about the whole answer."""

    type: str
    sequence_number: int
    response: Response


class OfItem(msgspec.Struct):
    """An event about an item."""

    type: str
    sequence_number: int
    output_index: int
    item: Item


class OfPart(msgspec.Struct):
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


class StreamedError(msgspec.Struct):
    """An error that ends a stream, told twice: as an event of its own, and as other routes do."""

    type: str
    sequence_number: int
    code: str | None
    message: str
    param: str | None
    error: openai.ErrorDetail


class StreamedResponse:
    """The rendering of a request that asked for a stream."""

    def __init__(self, job: Job, request_id: str) -> None:
        self.headers: Headers = (*HEADERS, *job.body.headers)
        self._items = answer.Items(request_id, job.body.called)
        self._response = answer.begun(job, request_id, int(time.time()))
        self._passages = Passages()
        self._number = 0
        self._head = b""
        self._tail = b""

    def take(self, events: list[EngineEvent]) -> bytes:
        """Return what these events are to the client. Raises AnswerBroken."""
        told = [] if self._number else self._opening()
        for event in events:
            for part in event.chunk().choices:
                if part.index:
                    raise InvalidEngineResponse("a choice that nobody asked for")
                told += [self._tell(step) for step in self._passages.read(part)]
        return b"".join(told)

    def end(self, tokens: TokenUsage) -> bytes:
        """Return the last events. Raises AnswerBroken when there was no ending."""
        told = [] if self._number else self._opening()
        told += [self._tell(step) for step in self._passages.end()]
        reason = self._passages.finish_reason
        items = self._items.items_of(self._passages.closed, reason)
        last = answer.ended(self._response, items, reason, tokens)
        return b"".join(told) + self._of_response(f"response.{last.status}", last)

    def error_event(self, error: ApiError) -> bytes:
        """Return an error as the end of the stream."""
        detail = openai.detail_of(error)
        return self._event(
            StreamedError("error", self._next(), error.code, error.message, error.param, detail)
        )

    def _opening(self) -> list[bytes]:
        created = self._of_response("response.created", self._response)
        return [created, self._of_response("response.in_progress", self._response)]

    def _tell(self, step: Step) -> bytes:
        if step.does == "go_on":
            return b"" if self._items.is_custom(step.passage) else self._delta(step)
        return self._open(step.passage) if step.does == "open" else self._close(step.passage)

    def _open(self, passage: Passage) -> bytes:
        self._set_frame(passage)
        item = self._items.item_of(passage, "in_progress", [])
        added = self._of_item("response.output_item.added", passage, item)
        if passage.kind == "call":
            return added
        return added + self._of_part("response.content_part.added", passage, EMPTY[passage.kind])

    def _close(self, passage: Passage) -> bytes:
        reason = self._passages.finish_reason
        status: answer.Status = "incomplete" if reason in answer.INCOMPLETE else "completed"
        parts: list[Part] = []
        if self._items.is_custom(passage):
            told = self._custom_input(passage)
        elif passage.kind == "call":
            told = self._done(passage, "function_call_arguments", "arguments")
        else:
            parts = [answer.part_of(passage)]
            text = "refusal" if passage.kind == "refusal" else "text"
            told = self._done(passage, PARTS[passage.kind], text)
            told += self._of_part("response.content_part.done", passage, parts[0])
        item = self._items.item_of(passage, status, parts)
        return told + self._of_item("response.output_item.done", passage, item)

    def _set_frame(self, passage: Passage) -> None:
        """Write once what all deltas of a passage share."""
        is_call = passage.kind == "call"
        kind = f"response.{'function_call_arguments' if is_call else PARTS[passage.kind]}.delta"
        item_id = self._items.id_of(passage)
        part = "" if is_call else '"content_index":0,'
        self._head = (
            f'event: {kind}\ndata: {{"type":"{kind}","item_id":"{item_id}",'
            f'"output_index":{passage.place},{part}"delta":'
        ).encode()

    def _delta(self, step: Step) -> bytes:
        logprobs = b""
        if step.passage.kind == "content":
            logprobs = b',"logprobs":' + (_encode(step.logprobs) if step.logprobs else b"[]")
        number = b',"sequence_number":%d}\n\n' % self._next()
        return self._head + _encode(step.text) + logprobs + number

    def _done(self, passage: Passage, of: str, name: str) -> bytes:
        told = {
            "type": f"response.{of}.done",
            "sequence_number": self._next(),
            "item_id": self._items.id_of(passage),
            "output_index": passage.place,
            name: passage.text,
        }
        if passage.kind == "call":
            told["name"] = self._items.called(passage).name
        else:
            told["content_index"] = 0
        if passage.kind == "content":
            told["logprobs"] = passage.logprobs
        return b"event: %b\ndata: %b\n\n" % (str(told["type"]).encode(), _encode(told))

    def _custom_input(self, passage: Passage) -> bytes:
        """Tell the text of a custom tool, in one: it is known once its arguments can be read."""
        text = input_of(passage.text)
        item_id, place = self._items.id_of(passage), passage.place
        kind = "response.custom_tool_call_input"
        delta = OfInput(f"{kind}.delta", self._next(), item_id, place, delta=text)
        return self._event(delta) + self._event(
            OfInput(f"{kind}.done", self._next(), item_id, place, input=text)
        )

    def _of_response(self, kind: str, response: Response) -> bytes:
        return self._event(OfResponse(kind, self._next(), response))

    def _of_item(self, kind: str, passage: Passage, item: Item) -> bytes:
        return self._event(OfItem(kind, self._next(), passage.place, item))

    def _of_part(self, kind: str, passage: Passage, part: Part) -> bytes:
        item_id = self._items.id_of(passage)
        return self._event(OfPart(kind, self._next(), item_id, passage.place, part))

    def _event(self, event: OfResponse | OfItem | OfPart | OfInput | StreamedError) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (event.type.encode(), _encode(event))

    def _next(self) -> int:
        number, self._number = self._number, self._number + 1
        return number
