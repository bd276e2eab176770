"""What an engine minds about a request, read from its own words."""

import re

from serving.engine.errors import (
    EngineError,
    PromptSize,
    Reason,
    ReplicaFailing,
    ReplicaOverloaded,
    RequestRefused,
)

TEXT_BYTES_MAX = 4 * 1024
"""Of an engine's words the first are read: the client's own text may follow, of any length."""
OVERLOADED = frozenset({429, 503})
FAILING = frozenset({401, 404, 407})
"""What an engine answers to a key, a model or an address that is ours to choose."""

_WORDS: tuple[tuple[Reason, re.Pattern[str]], ...] = (
    (
        "context",
        re.compile(r"context length|max_model_len|maximum model length|is longer than"),
    ),
    ("min_tokens", re.compile(r"min_tokens must be")),
    ("dimensions", re.compile(r"matryoshka|only supports dimensions")),
    ("tools", re.compile(r"tool[ _-]?(choice|call|parser|use)")),
    ("format", re.compile(r"schema|grammar|json|regex|structured")),
    ("template", re.compile(r"template|role|alternat")),
)


_SIZE = re.compile(r"contains (at least )?(\d{1,9}) input tokens|input length \((\d{1,9})\)")


def refusal_of(text: str) -> RequestRefused:
    """Return what an engine's message says of the request."""
    words = text[:TEXT_BYTES_MAX].lower()
    reason: Reason = next((reason for reason, mark in _WORDS if mark.search(words)), "other")
    return RequestRefused(reason, _prompt_size(words) if reason == "context" else None)


def _prompt_size(words: str) -> PromptSize | None:
    found = _SIZE.search(words)
    if found is None:
        return None
    return PromptSize(int(found[2] or found[3]), is_least=found[1] is not None)


def error_of(status: int, body: bytes) -> EngineError:
    """Return what an answer of a status other than 200 means."""
    if status in OVERLOADED:
        return ReplicaOverloaded(f"engine answered {status}")
    if not 400 <= status < 500 or status in FAILING:
        return ReplicaFailing(f"engine answered {status}")
    return refusal_of(body[:TEXT_BYTES_MAX].decode(errors="replace"))
