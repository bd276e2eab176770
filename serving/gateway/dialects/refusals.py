"""What is told of a request that does not fit, or that an engine minds, in words of our own.

The fields are named as in chat; dialects that are lowered to it put their own names instead.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from serving.engine.errors import ControlToken, PromptLength, Reason
from serving.engine.request import EngineRequest
from serving.gateway.errors import ApiError, BadRequest

Names = Sequence[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]
"""From a field's name in chat to the same in another language."""


class ContextExceeded(BadRequest):
    """A prompt and an answer that do not fit together, with the numbers known, in OpenAI's words:
    clients look for them to shorten a conversation."""

    def __init__(
        self,
        limit_tokens: int,
        *,
        prompt: PromptLength | None,
        asked_tokens: int | None,
        param: str,
    ) -> None:
        self.limit_tokens = limit_tokens
        self.prompt = prompt
        self.asked_tokens = asked_tokens
        what = "prompt" if param == "prompt" else "messages"
        message = (
            f"This model's maximum context length is {limit_tokens} tokens."
            f" However, {self._excess(what)}. Please reduce the length of the {what} or completion."
        )
        super().__init__(message, code="context_length_exceeded", param=param)

    def _excess(self, what: str) -> str:
        prompt, asked = self.prompt, self.asked_tokens
        least = "at least " if prompt is not None and prompt.is_least else ""
        if prompt is not None and asked is not None:
            in_all = f"you requested {least}{prompt.tokens + asked} tokens"
            return f"{in_all} ({least}{prompt.tokens} in the {what}, {asked} in the completion)"
        if prompt is not None:
            return f"your {what} resulted in {least}{prompt.tokens} tokens"
        if asked is None:
            return f"your {what} resulted in more"
        if asked > self.limit_tokens:
            return f"you requested {asked} tokens in the completion"
        return f"your {what} and the {asked} tokens requested in the completion are more"


def refused(reason: Reason) -> BadRequest:
    """Return the error for what an engine minds besides the length."""
    param, code, message = _REFUSALS[reason]
    return BadRequest(message, code=code, param=param)


_REFUSALS: dict[Reason, tuple[str | None, str, str]] = {
    "tools": (
        "tools",
        "unsupported_value",
        "This model has no parser that finds calls of tools in what it says; leave out 'tools'.",
    ),
    "format": (
        "response_format",
        "unsupported_value",
        "This model cannot answer in this format.",
    ),
    "logprobs": (
        "logprobs",
        "unsupported_value",
        "This model does not tell the probabilities of its tokens.",
    ),
    "template": (
        "messages",
        "unsupported_value",
        "This model cannot take these messages in this order.",
    ),
    "dimensions": (
        "dimensions",
        "unsupported_value",
        "This model cannot give vectors of this length; leave out 'dimensions'.",
    ),
    "min_tokens": (
        "min_tokens",
        "invalid_value",
        "Invalid value for 'min_tokens': at most what the prompt leaves of the context.",
    ),
    "control_token": ("messages", "invalid_value", "A text holds a control token of the model's."),
    "other": (None, "invalid_value", "The model cannot serve this request."),
}


def control_token(found: ControlToken) -> BadRequest:
    """Return the error for a text that would become a control token of the model's."""
    param = "tools" if found.in_tools else "messages"
    quoted = f" '{found.token[:200]}'"
    message = (
        f"Invalid value for '{param}': holds{quoted}, which this model reads as a"
        " control token; leave it out, or put a space into it."
    )
    return BadRequest(message, code="invalid_value", param=param, quoted=quoted)


def with_names(work: EngineRequest, names: Names) -> EngineRequest:
    """Return the work with its grammars' fields named as in another language."""
    if work.grammars is None:
        return work
    params = work.grammars.params
    for chat_name, name in names:
        params = tuple(chat_name.sub(name, param) for param in params)
    return replace(work, grammars=replace(work.grammars, params=params))


def renamed(error: ApiError, names: Names) -> ApiError:
    """Change the error to name its field as another language does."""
    param = error.param
    if param is not None:
        for chat_name, name in names:
            error.param = chat_name.sub(name, error.param or "")
        error.message = error.message.replace(f"'{param}'", f"'{error.param}'")
    return error
