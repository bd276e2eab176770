"""What an engine says a request took, in OpenAI's words, and the same as plain counts."""

from typing import Annotated

import msgspec
from msgspec import Meta

from serving.contract.codec import NOT_JSON
from serving.engine.errors import AnswerBroken

Stated = Annotated[int, Meta(ge=0, le=10**9)]
"""A count of tokens, as an engine states it."""


class PromptDetails(msgspec.Struct):
    """Of the prompt: what was read from the prefix cache."""

    cached_tokens: Stated | None = 0


class CompletionDetails(msgspec.Struct):
    """Of the completion: what was thought and not shown."""

    reasoning_tokens: Stated | None = 0


class EngineUsage(msgspec.Struct):
    """Usage as an engine states it."""

    prompt_tokens: Stated = 0
    completion_tokens: Stated | None = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Tokens(msgspec.Struct, frozen=True):
    """What one request took; cached is a part of input, reasoning of output."""

    input: int = 0
    cached_input: int = 0
    output: int = 0
    reasoning: int = 0

    @classmethod
    def of(cls, usage: EngineUsage) -> "Tokens":
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

    def at_most(self, *, input: int, output: int) -> "Tokens":
        """Return the same, or what was asked for where an engine says that it took more."""
        if self.input <= input and self.output <= output:
            return self
        return Tokens(
            input=min(self.input, input),
            cached_input=min(self.cached_input, input),
            output=min(self.output, output),
            reasoning=min(self.reasoning, output),
        )


NO_TOKENS = Tokens()

_decode = msgspec.json.Decoder(EngineUsage).decode


def read_usage(usage: bytes) -> Tokens:
    """Return the counts of a usage in JSON. Raises AnswerBroken."""
    try:
        return Tokens.of(_decode(usage))
    except NOT_JSON as error:
        raise AnswerBroken("a usage is malformed") from error
