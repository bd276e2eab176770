"""Server-sent events as bytes: splitting them, and cutting out what the client is not to see.

An engine's chunk is a JSON object whose strings escape their quotes, so `,"usage":{` can only be
the key itself. Whatever looks different from vLLM's own is parsed and written anew.
"""

import re
from typing import Any

import msgspec

from serving.engine.client import EngineRefusal
from serving.usage.meter import EngineUsage

EVENT_BYTES_MAX = 8 * 1024 * 1024
"""An echoed prompt comes in one event together with its token ids."""

PREFIX = b"data: "
DONE = b"data: [DONE]"
USAGE = b',"usage":{'
_INDEX = re.compile(rb'"choices":\[\{"index":(\d+)')
_decode_usage = msgspec.json.Decoder(EngineUsage).decode


class BrokenStream(Exception):
    """What the engine sent is not a stream of events."""


class Reported(msgspec.Struct):
    """An error as an engine words it inside a stream."""

    message: str = ""
    code: int | None = None


class ReportedEvent(msgspec.Struct):
    """The event that carries it."""

    error: Reported


def reported_error(event: bytes) -> BrokenStream | EngineRefusal:
    """Return what an engine's error event means.

    vLLM checks grammars and token ids only once a stream is open, so that a wrong request gets
    200 and then this. A dying vLLM says `[DONE]` after it: an ending that is no ending.
    """
    try:
        error = _decode_reported(event.removeprefix(PREFIX)).error
    except msgspec.DecodeError:
        return BrokenStream("the engine reported an error")
    if error.code is not None and 400 <= error.code < 500:
        return EngineRefusal(error.code, error.message)
    return BrokenStream("the engine reported an error")


_decode_reported = msgspec.json.Decoder(ReportedEvent).decode


class Splitter:
    """Cuts a stream into events; keeps the unfinished rest, up to 8 MB."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that `data` completes, without their blank lines."""
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        *events, self._rest = (self._rest + data if self._rest else data).split(b"\n\n")
        if len(self._rest) > EVENT_BYTES_MAX:
            raise BrokenStream("an event is larger than 8 MB")
        return events


def cut_usage(event: bytes) -> tuple[bytes, bytes | None]:
    """Return the event without its usage, and the usage."""
    at = event.rfind(USAGE)
    if at >= 0:
        end = event.find(b"}", at) + 1
        if event.count(b"{", at, end) == 1:
            return event[:at] + event[end:], event[at + len(USAGE) - 1 : end]
    if b'"usage"' not in event:
        return event, None
    return _rewrite(event)


def _rewrite(event: bytes) -> tuple[bytes, bytes | None]:
    try:
        chunk: dict[str, Any] = msgspec.json.decode(event.removeprefix(PREFIX))
    except msgspec.DecodeError as error:
        raise BrokenStream("an event is not JSON") from error
    usage = chunk.pop("usage", None)
    return PREFIX + msgspec.json.encode(chunk), msgspec.json.encode(usage) if usage else None


def read_usage(usage: bytes) -> EngineUsage:
    """Parse a usage that was cut out. Raises BrokenStream."""
    try:
        return _decode_usage(usage)
    except msgspec.DecodeError as error:
        raise BrokenStream("a chunk's usage is malformed") from error


def choice_index(event: bytes) -> int:
    """Return which of several choices a chunk belongs to."""
    match = _INDEX.search(event)
    return int(match[1]) if match else 0
