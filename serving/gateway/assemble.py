"""A whole answer out of an engine's stream, equal to what vLLM would have answered unstreamed.

Keys that vLLM leaves null for every client of ours (`token_ids` and the like) are left out.
"""

from typing import Any

import msgspec

from serving.gateway.job import Job
from serving.gateway.reply import whole_answer
from serving.gateway.sse import PREFIX, BrokenStream
from serving.usage.meter import Tokens

ANSWER_BYTES_MAX = 64 * 1024 * 1024


class Delta(msgspec.Struct):
    """What one chunk adds to a message."""

    content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None


class Part(msgspec.Struct):
    """What one chunk adds to a choice; the lists of `logprobs` are one entry a token."""

    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    logprobs: dict[str, list[msgspec.Raw] | None] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class Chunk(msgspec.Struct):
    """What is read of one event."""

    created: int
    choices: list[Part]


_decode = msgspec.json.Decoder(Chunk).decode
_encode = msgspec.json.Encoder().encode


class Choice:
    """One choice as far as it has come."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self._stop_reason: int | str | None = None
        self._texts: dict[str, list[str]] = {}
        self._logprobs: dict[str, list[msgspec.Raw]] | None = None

    def add(self, part: Part) -> None:
        """Append what a chunk brought."""
        delta = part.delta
        if delta is None:
            self._append("text", part.text)
        else:
            self._append("content", delta.content)
            self._append("reasoning", delta.reasoning)
            self._append("refusal", delta.refusal)
        if part.logprobs is not None:
            self._append_logprobs(part.logprobs)
        if part.finish_reason is not None:
            self.finish_reason, self._stop_reason = part.finish_reason, part.stop_reason

    def body(self, index: int, *, is_chat: bool) -> dict[str, Any]:
        """Return the choice as clients get it."""
        said: dict[str, Any] = (
            {"message": self._message()} if is_chat else {"text": self._joined("text") or ""}
        )
        return {
            "index": index,
            **said,
            "logprobs": self._logprobs,
            "finish_reason": self.finish_reason,
            "stop_reason": self._stop_reason,
        }

    def _message(self) -> dict[str, Any]:
        reasoning = self._joined("reasoning")
        message = {
            "role": "assistant",
            # A stream opens with an empty content even where only thought follows.
            "content": self._joined("content") or (None if reasoning else ""),
            "refusal": self._joined("refusal"),
        }
        return message | ({"reasoning": reasoning} if reasoning is not None else {})

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
    """The Outlet of a request that asked for a whole answer."""

    def __init__(self, job: Job, request_id: str) -> None:
        self._job = job
        self._request_id = request_id
        self._choices = [Choice() for _ in range(job.choices)]
        self._created = 0
        self._size = 0

    async def take(self, events: list[bytes]) -> None:
        """Add events to the answer. Raises BrokenStream."""
        for event in events:
            self._size += len(event)
            if self._size > ANSWER_BYTES_MAX:
                raise BrokenStream("the answer is larger than 64 MB")
            self._add(event)

    def end(self, tokens: Tokens) -> bytes:
        """Return the client's body. Raises BrokenStream when a choice has no ending."""
        if any(choice.finish_reason is None for choice in self._choices):
            raise BrokenStream("a choice never ended")
        is_chat = self._job.endpoint.operation == "chat"
        bodies = [each.body(index, is_chat=is_chat) for index, each in enumerate(self._choices)]
        choices = msgspec.Raw(_encode(bodies))
        return whole_answer(self._created, choices, self._job, self._request_id, tokens)

    def _add(self, event: bytes) -> None:
        try:
            chunk = _decode(event.removeprefix(PREFIX))
            for part in chunk.choices:
                self._choices[part.index].add(part)
        except (msgspec.DecodeError, IndexError) as error:
            raise BrokenStream("a chunk is malformed") from error
        self._created = chunk.created
