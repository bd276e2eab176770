"""Reading an answer of embeddings: each vector an event as it comes, so that however many there are
none of them waits for the others to be worked on.

A vector's object holds no other, so it begins at the last `{` before its `}`; what is left around
the vectors is parsed at the end.
"""

import binascii
import re
from array import array
from math import isfinite
from typing import ClassVar

import msgspec

from serving.contract.codec import NOT_JSON
from serving.engine.errors import InvalidEngineResponse
from serving.engine.events import EngineEvent, EngineUsage, TokenUsage
from serving.engine.response_parser import ANSWER_BYTES_MAX, check_id

_EMBEDDING = re.compile(rb'"embedding"\s*:')
_PLACE = b"0"


class EmbeddingVector(msgspec.Struct):
    """The vector of input number `index`: base64 of its numbers as float32, little-endian, or of an
    engine that knows no base64 the numbers themselves."""

    index: int
    embedding: str | list[float]

    def base64(self) -> str:
        """Return it as base64."""
        if isinstance(self.embedding, str):
            return self.embedding
        return binascii.b2a_base64(array("f", self.embedding), newline=False).decode()

    def numbers(self) -> list[float]:
        """Return its numbers. Raises InvalidEngineResponse."""
        if not isinstance(self.embedding, str):
            return self.embedding
        numbers = array("f")
        try:
            numbers.frombytes(binascii.a2b_base64(self.embedding, strict_mode=True))
        except ValueError as error:
            raise InvalidEngineResponse("a vector is not base64 of float32") from error
        listed = numbers.tolist()
        if not isfinite(sum(listed)):
            raise InvalidEngineResponse("a vector holds what JSON has no number for")
        return listed


class _Frame(msgspec.Struct):
    """What is around the vectors, with a number in the place of each."""

    data: list[int]
    usage: EngineUsage


_decode_vector = msgspec.json.Decoder(EmbeddingVector).decode
_decode_frame = msgspec.json.Decoder(_Frame).decode


def vector_of(event: EngineEvent) -> EmbeddingVector:
    """Return the vector that an event is. Raises InvalidEngineResponse."""
    try:
        return _decode_vector(event.raw)
    except NOT_JSON as error:
        raise InvalidEngineResponse("a vector is malformed") from error


class EmbeddingParser:
    """Of an answer with one vector for each of `inputs`. Nothing is known of the work before its
    end. `request_id` is given where the engine repeats it in its own."""

    is_whole: ClassVar[bool] = True
    piece_bytes: ClassVar[int] = 16 * 1024

    def __init__(self, inputs: int, request_id: str | None = None) -> None:
        self.tokens = TokenUsage()
        self.has_usage = self.is_done = False
        self._inputs = inputs
        self._request_id = request_id
        self._size = 0
        self._frame: list[bytes] = []
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> list[EngineEvent]:
        """Return the vectors that this completes. Raises InvalidEngineResponse when there is too
        much."""
        self._size += len(data)
        if self._size > ANSWER_BYTES_MAX:
            raise InvalidEngineResponse("the answer is larger than 64 MB")
        self._rest.append(data)
        if b"}" not in data:
            return []
        *objects, rest = b"".join(self._rest).split(b"}")
        self._rest = [rest]
        return [vector for each in objects if (vector := self._take(each)) is not None]

    def finish(self) -> None:
        """Raise InvalidEngineResponse unless there was a vector for each input, and a usage."""
        frame = b"".join((*self._frame, *self._rest))
        if self._request_id is not None:
            check_id(frame, self._request_id)
        try:
            found = _decode_frame(frame)
        except NOT_JSON as error:
            raise InvalidEngineResponse("the answer is malformed") from error
        if len(found.data) != self._inputs:
            raise InvalidEngineResponse("there is not a vector for each input")
        self.tokens, self.has_usage, self.is_done = TokenUsage.of(found.usage), True, True

    def _take(self, words: bytes) -> EngineEvent | None:
        """Keep what ends an object; return it if that is a vector."""
        start = words.rfind(b"{")
        if start < 0 or _EMBEDDING.search(words, start) is None:
            self._frame += (words, b"}")
            return None
        self._frame += (words[:start], _PLACE)
        return EngineEvent(words[start:] + b"}")
