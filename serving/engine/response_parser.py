"""From an engine's bytes to events and usage: server-sent events, or one whole answer."""

import re
from typing import Any, ClassVar, Protocol

import msgspec

from serving.contract.codec import NOT_JSON
from serving.engine.errors import EngineError, InvalidEngineResponse, rejection_of
from serving.engine.events import EngineEvent, EngineUsage, TokenUsage, read_usage

EVENT_BYTES_MAX = 8 * 1024 * 1024
"""An echoed prompt comes in one event together with its token ids."""

DATA = b"data: "
BOUNDARY = b"\n\n"


class SseSplitter:
    """Cuts a stream into the data of its events; keeps the unfinished rest, up to 8 MB.

    Lines may end in `\\r\\n`: every `\\r` is dropped as it comes, since JSON holds none as it is.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that this completes. Raises InvalidEngineResponse."""
        if b"\r" in data:
            data = data.replace(b"\r", b"")
        if self._parts:
            if BOUNDARY not in self._parts[-1][-1:] + data:
                if data:
                    self._keep(data)
                return []
            data = b"".join([*self._parts, data])
            self._parts.clear()
            self._size = 0
        if data.startswith(DATA) and data.endswith(BOUNDARY):
            events = data[len(DATA) : -len(BOUNDARY)].split(BOUNDARY + DATA)
            if data.count(b"\n") == len(events) * len(BOUNDARY):
                return events
        *events, rest = data.split(BOUNDARY)
        if rest:
            self._keep(rest)
        return [_data(event) for event in events]

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > EVENT_BYTES_MAX:
            raise InvalidEngineResponse("an event is larger than 8 MB")
        self._parts.append(data)


def _data(event: bytes) -> bytes:
    """Return the data of an event, nothing when it holds none."""
    lines = event.split(b"\n")
    data = [line[len(b"data:") :] for line in lines if line.startswith(b"data:")]
    return b"\n".join(line.removeprefix(b" ") for line in data)


ANSWER_BYTES_MAX = 64 * 1024 * 1024
DONE = b"[DONE]"
USAGE = b',"usage":{'
NO_CHOICES = b'"choices":[]'
ABORTED = b'"finish_reason":"abort"'
"""How vLLM ends work that it was told to drop; not an ending that a client is to see."""
_INDEX = re.compile(rb'"choices":\[\{"index":(\d+)')
_ID = re.compile(rb'\{"id":"([^"\\]*)"')
NO_TOKEN_IDS = b',"token_ids":null'
"""In every chunk of vLLM's."""
GOES_ON = b',"finish_reason":null' + NO_TOKEN_IDS + b"}]"
"""How the choice of a chunk ends whose answer goes on: most do, and nothing else is wrong there."""
CHOICE_END_BYTES = len(NO_TOKEN_IDS + b"}]")
_TOKEN_IDS = b'token_ids":'
_ENGINE_FIELDS = re.compile(rb',"(?:(?:prompt_)?token_ids|prompt_text)":(?:null|\[[\d,]*\])')
"""Keys of vLLM's own that no client of ours asks for."""
CALLS = b'"tool_calls":['
CUT = b'"finish_reason":"length"'
_NAME_ALONE = re.compile(rb'("function":\{"name":"(?:[^"\\]|\\.)*")\}')
_NOT_BEGUN = re.compile(rb'("function":\{"name":"(?:[^"\\]|\\.)*","arguments":")\{\}"\}')
"""As strings escape their quotes, only the key matches."""


class ResponseParser(Protocol):
    """One answer; `tokens` is what the engine has said so far, at the end what it took in all."""

    is_whole: ClassVar[bool]
    """Whether nothing is known or told of it before its end."""
    piece_bytes: ClassVar[int]
    """What of it is worked on in about a millisecond."""

    is_done: bool
    """Whether the engine has said that this was all."""

    @property
    def tokens(self) -> TokenUsage: ...

    @property
    def has_usage(self) -> bool:
        """Whether the engine has said anything of it."""

    def feed(self, data: bytes) -> list[EngineEvent]:
        """Return the events that this completes. Raises InvalidEngineResponse or
        RequestRejected."""

    def finish(self) -> None:
        """Hear that the answer is over. Raises InvalidEngineResponse when something is missing."""


class StreamParser:
    """Of an answer that streams. `request_id` is given where the engine repeats it in its own;
    `may_call_tools` where it looks for calls of tools in what the model says."""

    is_whole: ClassVar[bool] = False
    piece_bytes: ClassVar[int] = 32 * 1024

    def __init__(
        self,
        *,
        choices: int,
        prompts: int,
        may_call_tools: bool = False,
        request_id: str | None = None,
    ) -> None:
        self._splitter = SseSplitter()
        self._choices = choices
        self._choices_per_prompt = choices // prompts
        self._may_call_tools = may_call_tools
        self._request_id = request_id
        self._usages: dict[int, bytes] = {}
        self._final: TokenUsage | None = None
        self.is_done = False

    @property
    def tokens(self) -> TokenUsage:
        """What the engine has said so far; at the end, what it took in all.

        Before the end nothing is known of cached input: vLLM names it in its last chunk only.
        Raises InvalidEngineResponse.
        """
        if self._final is not None:
            return self._final
        seen = {index: read_usage(usage) for index, usage in self._usages.items()}
        # Every choice states its prompt anew; several prompts come in order, n choices each.
        prompts = {index // self._choices_per_prompt: one.input for index, one in seen.items()}
        return TokenUsage(
            input=sum(prompts.values()),
            output=sum(one.output for one in seen.values()),
            reasoning=sum(one.reasoning for one in seen.values()),
        )

    @property
    def has_usage(self) -> bool:
        """Whether the engine has said anything of what the request takes."""
        return self._final is not None or bool(self._usages)

    def feed(self, data: bytes) -> list[EngineEvent]:
        """Return the events that this completes. Raises InvalidEngineResponse or
        RequestRejected."""
        chunks, events = self._splitter.feed(data), list[EngineEvent]()
        if self._request_id is not None and any(chunks):
            check_id(next(filter(None, chunks)), self._request_id)
            self._request_id = None
        usages, is_single, may_call_tools = self._usages, self._choices == 1, self._may_call_tools
        for chunk in chunks:
            rest, mark, counts = chunk.rpartition(USAGE)
            if mark and rest.endswith(GOES_ON) and counts.find(b"}") == len(counts) - 2:
                usage: bytes | None = b"{" + counts[:-1]
                event = EngineEvent(rest[:-CHOICE_END_BYTES] + b"}]}", usage)
            else:
                read = self._read(chunk)
                if read is None:
                    continue
                event, usage = read, read.usage
            if usage is not None:
                usages[0 if is_single else choice_index(event.raw)] = usage
            if may_call_tools and event.raw.find(CALLS) >= 0:
                event.raw = with_arguments(event.raw)
            events.append(event)
        return events

    def _read(self, chunk: bytes) -> EngineEvent | None:
        """Return what any chunk says of a choice, without keys of the engine's own; None where it
        says nothing of one. Raises InvalidEngineResponse or RequestRejected."""
        if chunk.startswith(b'{"error"'):
            raise _reported_error(chunk)
        if chunk.find(ABORTED) >= 0:
            raise InvalidEngineResponse("the engine dropped the work")
        if chunk == DONE:
            self.is_done = True
            return None
        if chunk.find(NO_CHOICES) < 0:
            rest, usage = split_usage(chunk) if chunk.find(b'"usage"') >= 0 else (chunk, None)
            if rest.find(NO_CHOICES) < 0:  # as it may be written with blanks
                return EngineEvent(strip_engine_fields(rest), usage) if rest else None
        self._note_final(chunk)
        return None

    def finish(self) -> None:
        """Raise InvalidEngineResponse unless the engine said that this was all."""
        if not self.is_done:
            raise InvalidEngineResponse("the stream ended early")

    def _note_final(self, chunk: bytes) -> None:
        try:
            usage = _decode_last(chunk).usage
        except NOT_JSON as error:
            raise InvalidEngineResponse("a usage is malformed") from error
        if usage is not None:
            self._final = TokenUsage.of(usage)


class _LastChunk(msgspec.Struct):
    """What ends a stream, without a choice."""

    usage: EngineUsage | None = None


_decode_last = msgspec.json.Decoder(_LastChunk).decode


class _Reported(msgspec.Struct):
    """An error as an engine words it inside a stream."""

    message: str = ""
    code: int | None = None


class _ReportedEvent(msgspec.Struct):
    error: _Reported


_decode_reported = msgspec.json.Decoder(_ReportedEvent).decode


def split_usage(chunk: bytes) -> tuple[bytes, bytes | None]:
    """Return the chunk without its usage, and the usage. Raises InvalidEngineResponse."""
    at = chunk.rfind(USAGE)
    if at >= 0:
        start = at + len(USAGE) - 1
        end = chunk.find(b"}", start) + 1
        if chunk.find(b"{", start + 1, end) < 0:
            return chunk[:at] + chunk[end:], chunk[start:end]
    if chunk.find(b'"usage"') < 0:
        return chunk, None
    return _rewrite(chunk)


def strip_engine_fields(chunk: bytes) -> bytes:
    """Return the chunk without the keys that are vLLM's own."""
    chunk = chunk.replace(NO_TOKEN_IDS, b"")
    return _ENGINE_FIELDS.sub(b"", chunk) if chunk.find(_TOKEN_IDS) >= 0 else chunk


def with_arguments(chunk: bytes) -> bytes:
    """Return a chunk of calls whose first words on each name its arguments, as OpenAI's do: vLLM
    leaves them out there, and says `{}` of a call that was cut before they began."""
    chunk = _NAME_ALONE.sub(rb'\1,"arguments":""}', chunk)
    return _NOT_BEGUN.sub(rb'\1"}', chunk) if chunk.find(CUT) >= 0 else chunk


def choice_index(chunk: bytes) -> int:
    """Return which of several choices a chunk belongs to."""
    match = _INDEX.search(chunk)
    return int(match[1]) if match else 0


def _rewrite(chunk: bytes) -> tuple[bytes, bytes | None]:
    try:
        parsed = msgspec.json.decode(chunk, type=dict[str, Any])
    except NOT_JSON as error:
        raise InvalidEngineResponse("an event is not JSON") from error
    usage = parsed.pop("usage", None)
    return msgspec.json.encode(parsed), msgspec.json.encode(usage) if usage else None


def check_id(data: bytes, request_id: str) -> None:
    """Raise InvalidEngineResponse when an answer bears an id, and not that of the request it is
    for."""
    match = _ID.match(data)
    if match is not None and not match[1].endswith(request_id.encode()):
        raise InvalidEngineResponse("an answer to another request")


def _reported_error(chunk: bytes) -> EngineError:
    """Return what an engine's error inside a stream means.

    vLLM checks grammars and token ids only once a stream is open, so that a wrong request gets
    200 and then this. A dying vLLM says `[DONE]` after it: an ending that is no ending.
    """
    try:
        error = _decode_reported(chunk).error
    except NOT_JSON:
        return InvalidEngineResponse("the engine reported an error")
    if error.code is not None and 400 <= error.code < 500:
        return rejection_of(error.message)
    return InvalidEngineResponse("the engine reported an error")
