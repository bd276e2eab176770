"""What stands at the head of every event of a stream: our id and the client's model name.

Engines write the same head on each event, `{"id":…,"object":…,"created":…,"model":…`, so it is
learnt from the first and exchanged as bytes; an event that begins otherwise is written anew.
"""

import re
import time
from typing import Any

import msgspec

from serving.gateway.sse import PREFIX, BrokenStream

_HEAD = re.compile(
    rb'data: \{"id":"[^"\\]*","object":("[a-z._]*"),"created":(\d{1,12}),"model":"[^"\\]*"'
)


class Heading:
    """The head of one stream; `created` is the engine's, our clock's until the first event."""

    def __init__(self, id_: str, model_name: str) -> None:
        self.created = int(time.time())
        self._id = id_
        self._model_name = model_name
        self._engine_head: bytes | None = None
        self._own_head = b""

    def rewrite(self, event: bytes) -> bytes:
        """Return the event under our own head. Raises BrokenStream when it is not JSON."""
        head = self._engine_head
        if head is None:
            head = self._engine_head = self._learn(event)
        if head and event.startswith(head):
            return self._own_head + event[len(head) :]
        return self._write_anew(event)

    def _learn(self, event: bytes) -> bytes:
        match = _HEAD.match(event)
        if match is None:
            return b""
        id_, model = msgspec.json.encode(self._id), msgspec.json.encode(self._model_name)
        self._own_head = b'data: {"id":%b,"object":%b,"created":%b,"model":%b' % (
            id_,
            match[1],
            match[2],
            model,
        )
        self.created = int(match[2])
        return match[0]

    def _write_anew(self, event: bytes) -> bytes:
        try:
            chunk: dict[str, Any] = msgspec.json.decode(event.removeprefix(PREFIX))
        except msgspec.DecodeError as error:
            raise BrokenStream("an event is not JSON") from error
        chunk |= {"id": self._id, "model": self._model_name}
        return PREFIX + msgspec.json.encode(chunk)
