"""An answer put together from what an engine said; equal to what vLLM says unstreamed."""

from collections.abc import Iterable

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
NO_LOGPROBS = msgspec.Raw(b"null")
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


class Assembled:
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
        return NO_LOGPROBS if self._logprobs is None else msgspec.Raw(_encode(self._logprobs))

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
        if part.delta is None:
            self._append("text", part.text)
        else:
            self._add_delta(part.delta)
        if part.logprobs is not None:
            self._append_logprobs(part.logprobs)
        if part.finish_reason is not None:
            self.finish_reason, self.stop_reason = part.finish_reason, part.stop_reason

    def _add_delta(self, delta: Delta) -> None:
        self._append("content", delta.content)
        self._append("reasoning", delta.reasoning)
        self._append("refusal", delta.refusal)
        for call in delta.tool_calls or ():
            self._calls.setdefault(call.index, _Call()).add(call)

    def _append(self, name: str, text: str | None) -> None:
        if text is not None:
            self._texts.setdefault(name, []).append(text)

    def _joined(self, name: str) -> str | None:
        texts = self._texts.get(name)
        return None if texts is None else "".join(texts)

    def _append_logprobs(self, lists: dict[str, list[msgspec.Raw] | None]) -> None:
        if self._logprobs is None:
            self._logprobs = {}
        for name, entries in lists.items():
            self._logprobs.setdefault(name, []).extend(entries or ())


class Assembly:
    """An answer of so many choices; `created` is the engine's, in seconds since 1970."""

    def __init__(self, choices: int) -> None:
        self.created = 0
        self._choices = [Assembled() for _ in range(choices)]
        self._size = 0

    def add(self, events: Iterable[EngineEvent]) -> None:
        """Add events to the answer. Raises AnswerBroken."""
        for event in events:
            self._size += len(event.raw)
            if self._size > ANSWER_BYTES_MAX:
                raise InvalidEngineResponse("the answer is larger than 64 MB")
            chunk = event.chunk()
            for part in chunk.choices:
                if not 0 <= part.index < len(self._choices):
                    raise InvalidEngineResponse("a choice that nobody asked for")
                self._choices[part.index].add(part)
            self.created = chunk.created

    def ended(self) -> list[Assembled]:
        """Return the choices. Raises AnswerBroken when one has no ending."""
        if any(choice.finish_reason is None for choice in self._choices):
            raise InvalidEngineResponse("a choice never ended")
        return self._choices

    def chat(self) -> list[EngineChoice]:
        """Return the choices of a chat. Raises AnswerBroken when one has no ending."""
        return [
            EngineChoice(index, each.message(), each.logprobs, each.finish_reason, each.stop_reason)
            for index, each in enumerate(self.ended())
        ]
