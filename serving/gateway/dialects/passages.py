"""An answer as passages: what was thought, said, refused or called, one after another.

Languages that number the parts of an answer are raised from these, whole and as a stream.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import ChoiceDelta, EngineChoice, ToolCallDelta

Kind = Literal["reasoning", "content", "refusal", "call"]
NO_LOGPROBS: list[msgspec.Raw] = []


@dataclass(slots=True)
class Passage:
    """The passage number `place`: its text, or the arguments of the call `id` of `name`."""

    kind: Kind
    place: int
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    logprobs: list[msgspec.Raw] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Step(NamedTuple):
    """What happens to a passage: it opens, goes on by `text`, or closes."""

    does: Literal["open", "go_on", "close"]
    passage: Passage
    text: str = ""
    logprobs: list[msgspec.Raw] = NO_LOGPROBS


class Passages:
    """The passages of one choice as they come; at most the last is open.

    It is asked for every chunk of a stream: lists are made here, since generators cost more.
    """

    def __init__(self) -> None:
        self.closed: list[Passage] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self._open: Passage | None = None
        self._calls = -1

    def read(self, part: ChoiceDelta) -> list[Step]:
        """Return what a chunk does. Raises AnswerBroken."""
        steps: list[Step] = []
        if (delta := part.delta) is not None:
            if delta.reasoning:
                self._say(steps, "reasoning", delta.reasoning)
            if delta.content:
                logprobs = (part.logprobs or {}).get("content") or NO_LOGPROBS
                self._say(steps, "content", delta.content, logprobs)
            if delta.refusal:
                self._say(steps, "refusal", delta.refusal)
            for call in delta.tool_calls or ():
                self._call(steps, call)
        if part.finish_reason is not None:
            self.finish_reason, self.stop_reason = part.finish_reason, part.stop_reason
        return steps

    def end(self) -> list[Step]:
        """Close what is open; an answer of nothing says an empty text.

        Raises AnswerBroken when there was no ending.
        """
        if self.finish_reason is None:
            raise InvalidEngineResponse("a choice never ended")
        steps: list[Step] = []
        if self._open is None and not self.closed:
            self._begin(steps, "content")
        self._close(steps)
        return steps

    def _say(
        self,
        steps: list[Step],
        kind: Kind,
        text: str,
        logprobs: list[msgspec.Raw] = NO_LOGPROBS,
    ) -> None:
        passage = self._open
        if passage is None or passage.kind != kind:
            self._close(steps)
            passage = self._begin(steps, kind)
        passage.pieces.append(text)
        passage.logprobs += logprobs
        steps.append(Step("go_on", passage, text, logprobs))

    def _call(self, steps: list[Step], delta: ToolCallDelta) -> None:
        function = delta.function
        passage = self._open
        if delta.index > self._calls:
            self._close(steps)
            self._calls = delta.index
            passage = self._begin(steps, "call", delta.id, function.name if function else None)
        elif passage is None or passage.kind != "call" or delta.index < self._calls:
            raise InvalidEngineResponse("a call goes on that was over")
        if function is not None and function.arguments:
            passage.pieces.append(function.arguments)
            steps.append(Step("go_on", passage, function.arguments))

    def _begin(
        self, steps: list[Step], kind: Kind, id: str | None = None, name: str | None = None
    ) -> Passage:
        self._open = Passage(kind, len(self.closed), id or "", name or "")
        steps.append(Step("open", self._open))
        return self._open

    def _close(self, steps: list[Step]) -> None:
        if self._open is not None:
            passage, self._open = self._open, None
            self.closed.append(passage)
            steps.append(Step("close", passage))


class _Logged(msgspec.Struct):
    content: list[msgspec.Raw] | None = None


_decode_logged = msgspec.json.Decoder(_Logged | None).decode


def passages_of(choice: EngineChoice) -> list[Passage]:
    """Return the passages of a whole choice."""
    message = choice.message
    said: Iterable[tuple[Kind, str]] = (
        ("reasoning", message.thought),
        ("content", message.content or ""),
        ("refusal", message.refusal or ""),
    )
    passages = [Passage(kind, 0, pieces=[text]) for kind, text in said if text]
    passages += [
        Passage("call", 0, call.id, call.function.name, pieces=[call.function.arguments])
        for call in message.calls
    ]
    passages = passages or [Passage("content", 0)]
    logged = _decode_logged(choice.logprobs)
    for place, passage in enumerate(passages):
        passage.place = place
        if passage.kind == "content" and logged is not None:
            passage.logprobs = logged.content or []
    return passages
