"""What can go wrong between a gateway and an engine.

EngineError
├── ReplicaUnreachable   no connection, or not a byte of an answer: another replica may serve
├── ReplicaOverloaded    429 or 503: it is healthy and has no room
├── ReplicaFailing       any other answer that is not one: this replica is in trouble
├── AnswerBroken         the answer broke off, was aborted, or makes no sense
└── RequestRefused       an answer of 4xx: the request is wrong, no replica will take it
"""

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


class PromptSize(NamedTuple):
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


class ReplicaFailing(EngineError):
    """The replica answered with an error of its own."""


class AnswerBroken(EngineError):
    """An answer began and is not whole, or not an answer."""


class RequestRefused(EngineError):
    """The engine says that the request is wrong."""

    def __init__(self, reason: Reason, prompt: "PromptSize | None" = None) -> None:
        super().__init__(f"engine refused: {reason}")
        self.reason = reason
        self.prompt = prompt


class ControlToken(RequestRefused):
    """A text would become a control token of the model's, and nothing can prevent that here; with
    `in_tools` it stands where the model has to repeat it."""

    def __init__(self, token: str, *, in_tools: bool = False) -> None:
        super().__init__("control_token")
        self.token = token
        self.in_tools = in_tools
