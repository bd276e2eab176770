"""An answer put together from what an engine said: whole choices, equal to what vLLM says
unstreamed, or numbered content blocks of what was thought, said, refused or called."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET

from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import (
    ChoiceDelta,
    Delta,
    EngineChoice,
    EngineEvent,
    EngineFunctionCall,
    EngineMessage,
    EngineToolCall,
    ToolCallDelta,
)

ANSWER_BYTES_MAX = 64 * 1024 * 1024
NULL_LOGPROBS = msgspec.Raw(b"null")
_encode = msgspec.json.Encoder().encode


class _Call:
    """One call of a tool as far as it has come."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []

    def add(self, delta: ToolCallDelta) -> None:
        self.id = delta.id or self.id
        if delta.function is not None:
            self.name = delta.function.name or self.name
            self.arguments.append(delta.function.arguments or "")

    def whole(self) -> EngineToolCall:
        return EngineToolCall(self.id, EngineFunctionCall(self.name, "".join(self.arguments)))


class ChoiceAccumulator:
    """One choice as far as it has come."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, _Call] = {}
        self._logprobs: dict[str, list[msgspec.Raw]] | None = None

    @property
    def text(self) -> str:
        """What a completion says."""
        return self._joined("text") or ""

    @property
    def logprobs(self) -> msgspec.Raw:
        """The log-probabilities as JSON."""
        return NULL_LOGPROBS if self._logprobs is None else msgspec.Raw(_encode(self._logprobs))

    def message(self) -> EngineMessage:
        """Return what a chat says."""
        reasoning = self._joined("reasoning")
        calls = [call.whole() for _, call in sorted(self._calls.items())]
        return EngineMessage(
            # A stream opens with an empty content even where only thought or calls follow.
            content=self._joined("content") or (None if reasoning or calls else ""),
            refusal=self._joined("refusal"),
            reasoning=UNSET if reasoning is None else reasoning,
            tool_calls=calls,
        )

    def add(self, part: ChoiceDelta) -> None:
        """Append what a chunk brought."""
        if part.delta is not None:
            self._add_delta(part.delta)
        elif part.text is not None:
            self._append("text", part.text)
        if part.logprobs is not None:
            self._append_logprobs(part.logprobs)
        if part.finish_reason is not None:
            self.finish_reason, self.stop_reason = part.finish_reason, part.stop_reason

    def _add_delta(self, delta: Delta) -> None:
        if delta.content is not None:
            self._append("content", delta.content)
        if delta.reasoning is not None:
            self._append("reasoning", delta.reasoning)
        if delta.refusal is not None:
            self._append("refusal", delta.refusal)
        for call in delta.tool_calls or ():
            self._calls.setdefault(call.index, _Call()).add(call)

    def _append(self, name: str, text: str) -> None:
        self._texts.setdefault(name, []).append(text)

    def _joined(self, name: str) -> str | None:
        texts = self._texts.get(name)
        return None if texts is None else "".join(texts)

    def _append_logprobs(self, lists: dict[str, list[msgspec.Raw] | None]) -> None:
        if self._logprobs is None:
            self._logprobs = {}
        for name, entries in lists.items():
            self._logprobs.setdefault(name, []).extend(entries or ())


class AnswerAccumulator:
    """An answer of so many choices; `created` is the engine's, in seconds since 1970."""

    def __init__(self, choices: int) -> None:
        self.created = 0
        self._choices = [ChoiceAccumulator() for _ in range(choices)]
        self._size = 0

    def add(self, events: Iterable[EngineEvent]) -> None:
        """Add events to the answer. Raises InvalidEngineResponse."""
        choices, count = self._choices, len(self._choices)
        for event in events:
            self._size += len(event.raw)
            chunk = event.chunk()
            for part in chunk.choices:
                if not 0 <= part.index < count:
                    raise InvalidEngineResponse("a choice that nobody asked for")
                choices[part.index].add(part)
            self.created = chunk.created
        if self._size > ANSWER_BYTES_MAX:
            raise InvalidEngineResponse("the answer is larger than 64 MB")

    def ended(self) -> list[ChoiceAccumulator]:
        """Return the choices. Raises InvalidEngineResponse when one has no ending."""
        if any(choice.finish_reason is None for choice in self._choices):
            raise InvalidEngineResponse("a choice never ended")
        return self._choices

    def chat(self) -> list[EngineChoice]:
        """Return the choices of a chat. Raises InvalidEngineResponse when one has no ending."""
        return [
            EngineChoice(index, each.message(), each.logprobs, each.finish_reason, each.stop_reason)
            for index, each in enumerate(self.ended())
        ]


Kind = Literal["reasoning", "content", "refusal", "call"]
NO_LOGPROBS: list[msgspec.Raw] = []


@dataclass(slots=True)
class ContentBlock:
    """The content block number `index`: its text, or the arguments of the call `id` of `name`."""

    kind: Kind
    index: int
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    logprobs: list[msgspec.Raw] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class BlockEvent(NamedTuple):
    """What happens to a passage: it opens, goes on by `text`, or closes."""

    action: Literal["open", "go_on", "close"]
    block: ContentBlock
    text: str = ""
    logprobs: list[msgspec.Raw] = NO_LOGPROBS


class ContentBlockSplitter:
    """The passages of one choice as they come; at most the last is open.

    It is asked for every chunk of a stream: lists are made here, since generators cost more.
    """

    def __init__(self) -> None:
        self.closed: list[ContentBlock] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self._open: ContentBlock | None = None
        self._calls = -1

    def read(self, part: ChoiceDelta) -> list[BlockEvent]:
        """Return what a chunk does. Raises InvalidEngineResponse."""
        steps: list[BlockEvent] = []
        if (delta := part.delta) is not None:
            if delta.reasoning:
                self._append(steps, "reasoning", delta.reasoning)
            if delta.content:
                logprobs = (part.logprobs or {}).get("content") or NO_LOGPROBS
                self._append(steps, "content", delta.content, logprobs)
            if delta.refusal:
                self._append(steps, "refusal", delta.refusal)
            for call in delta.tool_calls or ():
                self._call(steps, call)
        if part.finish_reason is not None:
            self.finish_reason, self.stop_reason = part.finish_reason, part.stop_reason
        return steps

    def finish(self) -> list[BlockEvent]:
        """Close what is open; an answer of nothing says an empty text.

        Raises InvalidEngineResponse when there was no ending.
        """
        if self.finish_reason is None:
            raise InvalidEngineResponse("a choice never ended")
        steps: list[BlockEvent] = []
        if self._open is None and not self.closed:
            self._begin(steps, "content")
        self._close(steps)
        return steps

    def _append(
        self,
        steps: list[BlockEvent],
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
        steps.append(BlockEvent("go_on", passage, text, logprobs))

    def _call(self, steps: list[BlockEvent], delta: ToolCallDelta) -> None:
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
            steps.append(BlockEvent("go_on", passage, function.arguments))

    def _begin(
        self, steps: list[BlockEvent], kind: Kind, id: str | None = None, name: str | None = None
    ) -> ContentBlock:
        self._open = ContentBlock(kind, len(self.closed), id or "", name or "")
        steps.append(BlockEvent("open", self._open))
        return self._open

    def _close(self, steps: list[BlockEvent]) -> None:
        if self._open is not None:
            passage, self._open = self._open, None
            self.closed.append(passage)
            steps.append(BlockEvent("close", passage))


class _Logged(msgspec.Struct):
    content: list[msgspec.Raw] | None = None


_decode_logged = msgspec.json.Decoder(_Logged | None).decode


def content_blocks_of(choice: EngineChoice) -> list[ContentBlock]:
    """Return the passages of a whole choice."""
    message = choice.message
    said: Iterable[tuple[Kind, str]] = (
        ("reasoning", message.thought),
        ("content", message.content or ""),
        ("refusal", message.refusal or ""),
    )
    passages = [ContentBlock(kind, 0, pieces=[text]) for kind, text in said if text]
    passages += [
        ContentBlock("call", 0, call.id, call.function.name, pieces=[call.function.arguments])
        for call in message.calls
    ]
    passages = passages or [ContentBlock("content", 0)]
    logged = _decode_logged(choice.logprobs)
    for place, passage in enumerate(passages):
        passage.index = place
        if passage.kind == "content" and logged is not None:
            passage.logprobs = logged.content or []
    return passages
