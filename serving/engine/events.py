"""What an engine says: its events, their chunks, and the usage that it counted."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from serving.contract.codec import NOT_JSON
from serving.engine.errors import InvalidEngineResponse

Stated = Annotated[int, Meta(ge=0, le=10**9)]
"""A count of tokens, as an engine states it."""


class PromptTokensDetails(msgspec.Struct):
    """Of the prompt: what was read from the prefix cache."""

    cached_tokens: Stated | None = 0


class CompletionTokensDetails(msgspec.Struct):
    """Of the completion: what was thought and not shown."""

    reasoning_tokens: Stated | None = 0


class EngineUsage(msgspec.Struct):
    """Usage as an engine states it."""

    prompt_tokens: Stated = 0
    completion_tokens: Stated | None = 0
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


class TokenUsage(msgspec.Struct, frozen=True):
    """What one request took; cached is a part of input, reasoning of output."""

    input: int = 0
    cached_input: int = 0
    output: int = 0
    reasoning: int = 0

    @classmethod
    def of(cls, usage: EngineUsage) -> "TokenUsage":
        """Read an engine's usage; parts never exceed their whole, whatever an engine says."""
        output = usage.completion_tokens or 0
        prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
        cached = (prompt.cached_tokens if prompt else 0) or 0
        reasoning = (completion.reasoning_tokens if completion else 0) or 0
        return cls(
            input=usage.prompt_tokens,
            cached_input=min(cached, usage.prompt_tokens),
            output=output,
            reasoning=min(reasoning, output),
        )

    def at_most(self, *, input: int, output: int) -> "TokenUsage":
        """Return the same, or what was asked for where an engine says that it took more."""
        if self.input <= input and self.output <= output:
            return self
        return TokenUsage(
            input=min(self.input, input),
            cached_input=min(self.cached_input, input),
            output=min(self.output, output),
            reasoning=min(self.reasoning, output),
        )


NO_TOKENS = TokenUsage()

_decode_usage = msgspec.json.Decoder(EngineUsage).decode


def read_usage(usage: bytes) -> TokenUsage:
    """Return the counts of a usage in JSON. Raises InvalidEngineResponse."""
    try:
        return TokenUsage.of(_decode_usage(usage))
    except NOT_JSON as error:
        raise InvalidEngineResponse("a usage is malformed") from error


class EngineFunctionCall(msgspec.Struct):
    """A function that the model calls; the arguments are JSON as text, as far as it was written."""

    name: str
    arguments: str = ""


class EngineToolCall(msgspec.Struct, tag_field="type", tag="function"):
    """One call of a tool."""

    id: str
    function: EngineFunctionCall


class EngineMessage(msgspec.Struct):
    """What a model said in one choice, whole; `content` is null where it only calls or thinks."""

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    reasoning: str | UnsetType | None = UNSET
    tool_calls: list[EngineToolCall] | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        self.reasoning = UNSET if self.reasoning is None else self.reasoning
        self.tool_calls = self.tool_calls or UNSET

    @property
    def calls(self) -> list[EngineToolCall]:
        """The calls, if there are any."""
        return self.tool_calls or []

    @property
    def thought(self) -> str:
        """The reasoning, if there is any."""
        return self.reasoning or ""


class EngineChoice(msgspec.Struct):
    """One answer to a chat, as clients get it; `stop_reason` is the string that ended it."""

    index: int
    message: EngineMessage
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


class ChoiceDelta(msgspec.Struct):
    """What one chunk adds to a choice; the lists of `logprobs` are one entry a token."""

    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    logprobs: dict[str, list[msgspec.Raw] | None] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class EngineChunk(msgspec.Struct):
    """What is read of one chunk; `created` is in seconds since 1970."""

    created: int
    choices: list[ChoiceDelta]


_decode = msgspec.json.Decoder(EngineChunk).decode


class EngineEvent(msgspec.Struct, gc=False):
    """`raw` is the chunk as a JSON object, without its usage and keys of the engine's own.

    `usage` is what its choice took so far, as JSON, where the engine says it.
    """

    raw: bytes
    usage: bytes | None = None

    def chunk(self) -> EngineChunk:
        """Return what it holds. Raises InvalidEngineResponse when it is not a chunk."""
        try:
            return _decode(self.raw)
        except NOT_JSON as error:
            raise InvalidEngineResponse("a chunk is malformed") from error
