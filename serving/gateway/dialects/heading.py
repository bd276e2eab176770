"""The events of a stream with our own at the head of each: our id and the client's model name.

Engines write the same head on each event, `{"id":…,"object":…,"created":…,"model":…`, so it is
learnt from the first and exchanged as bytes; an event that begins otherwise is written anew.
"""

import re
import time
from typing import Any

import msgspec

from serving.contract.codec import NOT_JSON
from serving.contract.units import Tier
from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import EngineEvent

DATA, END = b"data: ", b"\n\n"
_HEAD = re.compile(
    rb'\{"id":"[^"\\]*","object":("[a-z._]*"),"created":(\d{1,12}),"model":"[^"\\]*"'
)


class Heading:
    """The head of one stream; `created` is the engine's, our clock's until the first event. `tier`
    is told where the request names one."""

    def __init__(self, id_: str, model_name: str, tier: Tier | None = None) -> None:
        self.created = int(time.time())
        self._own = {"id": id_, "model": model_name}
        if tier is not None:
            self._own["service_tier"] = tier
        self._engine_head: bytes | None = None
        self._own_head = b""

    def write(self, events: list[EngineEvent]) -> bytes:
        """Return events of the stream, each under our head. Raises AnswerBroken when one is not
        JSON."""
        parts: list[bytes] = []
        for event in events:
            chunk, head = event.raw, self._engine_head
            if head is None:
                head = self._engine_head = self._learn(chunk)
            if head and chunk.startswith(head):
                parts += (self._own_head, chunk[len(head) :], END)
            else:
                parts += (DATA, self._write_anew(chunk), END)
        return b"".join(parts)

    def _learn(self, chunk: bytes) -> bytes:
        match = _HEAD.match(chunk)
        if match is None:
            return b""
        kept = {"id": "", "object": msgspec.Raw(match[1]), "created": msgspec.Raw(match[2])}
        self._own_head = DATA + msgspec.json.encode(kept | self._own)[:-1]
        self.created = int(match[2])
        return match[0]

    def _write_anew(self, chunk: bytes) -> bytes:
        try:
            parsed = msgspec.json.decode(chunk, type=dict[str, Any])
        except NOT_JSON as error:
            raise InvalidEngineResponse("an event is not JSON") from error
        return msgspec.json.encode(parsed | self._own)
