"""Asking an engine how many tokens a prompt has, without any work on it."""

from dataclasses import dataclass
from typing import Any

import msgspec

from serving.contract.codec import NOT_JSON
from serving.contract.text_guard import TextGuard
from serving.engine.errors import AnswerBroken
from serving.engine.work import NO_TOKENS, Work, text_fields

PATH = "/tokenize"
ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""It names each token."""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class CountRequest:
    """What is sent to one replica, its body in pieces."""

    path: str
    body: tuple[bytes, ...]


class _Counted(msgspec.Struct):
    count: int


class _Prompt(msgspec.Struct):
    prompt: str | list[Any]


_decode = msgspec.json.Decoder(_Counted).decode
_decode_prompt = msgspec.json.Decoder(_Prompt).decode


def write_count(
    work: Work, *, served_name: str, text_guard: TextGuard | None = NO_TOKENS
) -> CountRequest:
    """Return the request for a replica that can count, about a chat. Raises ControlToken."""
    rest = b"," + _encode({"model": served_name})[1:]
    return CountRequest(PATH, (*text_fields(work, text_guard), rest))


def write_counts(
    work: Work, *, served_name: str, text_guard: TextGuard | None = NO_TOKENS
) -> tuple[int, list[CountRequest]]:
    """Return how many tokens the client counted itself, and the requests that count the rest: one
    for a chat or for each text of completions."""
    if work.operation == "chat":
        return 0, [write_count(work, served_name=served_name, text_guard=text_guard)]
    prompt = _decode_prompt(b"".join((*work.fields, b"}"))).prompt
    prompts = prompt if isinstance(prompt, list) else [prompt]
    ids = [one for one in prompts if not isinstance(one, str)]
    known = sum(len(one) if isinstance(one, list) else 1 for one in ids)
    return known, [
        CountRequest(PATH, (_encode({"model": served_name, "prompt": text}),))
        for text in prompts
        if isinstance(text, str)
    ]


def read_count(answer: bytes) -> int:
    """Return the count. Raises AnswerBroken."""
    try:
        return _decode(answer).count
    except NOT_JSON as error:
        raise AnswerBroken("a count is malformed") from error
