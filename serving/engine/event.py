"""What an engine says: a chunk at a time or in one piece, cleaned of what is not the client's.

What a chunk holds is decoded when somebody asks; an answer that passes through untouched never is.
Keys of an engine's own are not in these types, so that none of them reaches a client.
"""

import msgspec
from msgspec import UNSET, UnsetType

from serving.contract.codec import NOT_JSON
from serving.engine.errors import AnswerBroken


class FunctionCall(msgspec.Struct):
    """A function that the model calls; the arguments are JSON as text, as far as it was written."""

    name: str
    arguments: str = ""


class ToolCall(msgspec.Struct, tag_field="type", tag="function"):
    """One call of a tool."""

    id: str
    function: FunctionCall


class Message(msgspec.Struct):
    """What a model said in one choice, whole; `content` is null where it only calls or thinks."""

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    reasoning: str | UnsetType | None = UNSET
    tool_calls: list[ToolCall] | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        self.reasoning = UNSET if self.reasoning is None else self.reasoning
        self.tool_calls = self.tool_calls or UNSET

    @property
    def calls(self) -> list[ToolCall]:
        """The calls, if there are any."""
        return self.tool_calls or []

    @property
    def thought(self) -> str:
        """The reasoning, if there is any."""
        return self.reasoning or ""


class Choice(msgspec.Struct):
    """One answer to a chat, as clients get it; `stop_reason` is the string that ended it."""

    index: int
    message: Message
    logprobs: msgspec.Raw = msgspec.Raw(b"null")
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class FunctionCallDelta(msgspec.Struct):
    """What one chunk adds to a call: its name comes whole, its arguments in pieces."""

    name: str | None = None
    arguments: str | None = None


class ToolCallDelta(msgspec.Struct):
    """What one chunk adds to the call number `index` of a message."""

    index: int = 0
    id: str | None = None
    function: FunctionCallDelta | None = None


class Delta(msgspec.Struct):
    """What one chunk adds to a message."""

    content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class Part(msgspec.Struct):
    """What one chunk adds to a choice; the lists of `logprobs` are one entry a token."""

    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    logprobs: dict[str, list[msgspec.Raw] | None] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class Chunk(msgspec.Struct):
    """What is read of one chunk; `created` is in seconds since 1970."""

    created: int
    choices: list[Part]


_decode = msgspec.json.Decoder(Chunk).decode


class Event:
    """`raw` is the chunk as a JSON object, without its usage and keys of the engine's own.

    `usage` is what its choice took so far, as JSON, where the engine says it.
    """

    __slots__ = ("raw", "usage")

    def __init__(self, raw: bytes, usage: bytes | None = None) -> None:
        self.raw = raw
        self.usage = usage

    def chunk(self) -> Chunk:
        """Return what it holds. Raises AnswerBroken when it is not a chunk."""
        try:
            return _decode(self.raw)
        except NOT_JSON as error:
            raise AnswerBroken("a chunk is malformed") from error
