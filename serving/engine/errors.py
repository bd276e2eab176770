"""Errors of engines and replicas, read from an answer's status and words."""

import re
from typing import Literal, NamedTuple

Reason = Literal[
    "context",
    "tools",
    "format",
    "logprobs",
    "template",
    "dimensions",
    "min_tokens",
    "control_token",
    "other",
]
"""What an engine minds about a request: its length, its tools, the format that the answer should
have, probabilities that it does not give, the order of its messages, a length of vectors that it
cannot give, more tokens at least than its prompt leaves, a text that would be a control token, or
something that we do not know."""


class PromptLength(NamedTuple):
    """How long an engine found a prompt; with `is_least` it stopped counting there."""

    tokens: int
    is_least: bool

    def __str__(self) -> str:
        return f"at least {self.tokens:,}" if self.is_least else f"{self.tokens:,}"


class EngineError(Exception):
    """The engine did not answer as asked; the text is for our logs, never for clients."""


class ReplicaUnreachable(EngineError):
    """No connection to the replica, or it broke before the answer began."""


class ReplicaOverloaded(EngineError):
    """The replica has no room for the request."""


class ReplicaError(EngineError):
    """The replica answered with an error of its own."""


class InvalidEngineResponse(EngineError):
    """An answer began and is not whole, or not an answer."""


class RequestRejected(EngineError):
    """The engine says that the request is wrong."""

    def __init__(self, reason: Reason, prompt: "PromptLength | None" = None) -> None:
        super().__init__(f"engine refused: {reason}")
        self.reason = reason
        self.prompt = prompt


class ControlToken(RequestRejected):
    """A text would become a control token of the model's, and nothing can prevent that here; with
    `in_tools` it stands where the model has to repeat it."""

    def __init__(self, token: str, *, in_tools: bool = False) -> None:
        super().__init__("control_token")
        self.token = token
        self.in_tools = in_tools


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


def rejection_of(text: str) -> RequestRejected:
    """Return what an engine's message says of the request."""
    words = text[:TEXT_BYTES_MAX].lower()
    reason: Reason = next((reason for reason, mark in _WORDS if mark.search(words)), "other")
    return RequestRejected(reason, _prompt_size(words) if reason == "context" else None)


def _prompt_size(words: str) -> PromptLength | None:
    found = _SIZE.search(words)
    if found is None:
        return None
    return PromptLength(int(found[2] or found[3]), is_least=found[1] is not None)


def error_of(status: int, body: bytes) -> EngineError:
    """Return what an answer of a status other than 200 means."""
    if status in OVERLOADED:
        return ReplicaOverloaded(f"engine answered {status}")
    if not 400 <= status < 500 or status in FAILING:
        return ReplicaError(f"engine answered {status}")
    return rejection_of(body[:TEXT_BYTES_MAX].decode(errors="replace"))
