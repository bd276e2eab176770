"""Asking an engine how many tokens a prompt has, without any work on it."""

from dataclasses import dataclass

import msgspec

from serving.engine.errors import AnswerBroken
from serving.engine.work import Work

PATH = "/tokenize"
ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""It names each token."""


@dataclass(frozen=True, slots=True)
class CountRequest:
    """What is sent to one replica, its body in pieces."""

    path: str
    body: tuple[bytes, ...]


class _Counted(msgspec.Struct):
    count: int


_decode = msgspec.json.Decoder(_Counted).decode


def write_count(work: Work, *, served_name: str) -> CountRequest:
    """Return the request for a replica that can count."""
    rest = b"," + msgspec.json.encode({"model": served_name})[1:]
    return CountRequest(PATH, (*work.fields, rest))


def read_count(answer: bytes) -> int:
    """Return the count. Raises AnswerBroken."""
    try:
        return _decode(answer).count
    except msgspec.DecodeError as error:
        raise AnswerBroken("a count is malformed") from error
