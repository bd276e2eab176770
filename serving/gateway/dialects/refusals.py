"""What is told of a request that does not fit, or that an engine minds, in words of our own.

The fields are named as in chat; dialects that are lowered to it put their own names instead.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from serving.engine.errors import PromptSize, Reason
from serving.engine.work import Work
from serving.gateway.errors import ApiError, BadRequest

Names = Sequence[tuple[re.Pattern[str], str]]
"""From a field's name in chat to the same in another language."""


def context_exceeded(
    limit_tokens: int, *, prompt: PromptSize | None, asked_tokens: int | None, param: str
) -> BadRequest:
    """Return the error for a prompt and answer that do not fit together, with the numbers known."""
    are = "your prompt is" if param == "prompt" else "your messages are"
    known = []
    if prompt is not None:
        known.append(f"{are} {prompt}")
    elif asked_tokens is None or asked_tokens <= limit_tokens:
        known.append(f"{are} longer")
    if asked_tokens is not None:
        known.append(f"{asked_tokens:,} were asked for")
    message = f"{limit_tokens:,} tokens at most; {', and '.join(known)}."
    return BadRequest(message, code="context_length_exceeded", param=param)


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
    "other": (None, "invalid_value", "The model cannot serve this request."),
}


def with_names(work: Work, names: Names) -> Work:
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
