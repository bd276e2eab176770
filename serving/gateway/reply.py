"""What the client is told of an answer: its own model name, our id, usage in one shape."""

import msgspec

from serving.gateway.job import Job
from serving.gateway.sse import PREFIX, BrokenStream
from serving.usage.meter import CompletionDetails, EngineUsage, PromptDetails, Tokens

ABORTED = b'"finish_reason":"abort"'
"""How vLLM ends work it was told to drop; not an ending that a client is to see."""


class Usage(msgspec.Struct):
    """Usage in OpenAI's words; every key always."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class EngineAnswer(msgspec.Struct):
    """What is read of an engine's answer; all else stays behind."""

    created: int
    choices: msgspec.Raw
    usage: EngineUsage


class Answer(msgspec.Struct):
    """An answer as the client gets it."""

    id: str
    object: str
    created: int
    model: str
    choices: msgspec.Raw
    usage: Usage


_decode = msgspec.json.Decoder(EngineAnswer).decode
_EMPTY = msgspec.Raw(b"[]")


def usage_of(tokens: Tokens) -> Usage:
    """Say what was metered."""
    return Usage(
        prompt_tokens=tokens.input,
        completion_tokens=tokens.output,
        total_tokens=tokens.input + tokens.output,
        prompt_tokens_details=PromptDetails(tokens.cached_input),
        completion_tokens_details=CompletionDetails(tokens.reasoning),
    )


def rebuild(data: bytes, job: Job, request_id: str) -> tuple[bytes, Tokens]:
    """Return the client's body and what it took. Raises BrokenStream."""
    try:
        answer = _decode(data)
    except msgspec.DecodeError as error:
        raise BrokenStream("the answer is malformed") from error
    if ABORTED in bytes(answer.choices):
        raise BrokenStream("the engine dropped the work")
    tokens = Tokens.of(answer.usage)
    return whole_answer(answer.created, answer.choices, job, request_id, tokens), tokens


def whole_answer(
    created: int, choices: msgspec.Raw, job: Job, request_id: str, tokens: Tokens
) -> bytes:
    """Return the client's body."""
    kind = "chat.completion" if job.endpoint.operation == "chat" else "text_completion"
    answer = Answer(
        id=job.endpoint.id_prefix + request_id,
        object=kind,
        created=created,
        model=job.model_name,
        choices=choices,
        usage=usage_of(tokens),
    )
    return msgspec.json.encode(answer)


def usage_event(created: int, job: Job, request_id: str, tokens: Tokens) -> bytes:
    """Return the one extra event that a client gets who asked for usage."""
    kind = "chat.completion.chunk" if job.endpoint.operation == "chat" else "text_completion"
    last = Answer(
        id=job.endpoint.id_prefix + request_id,
        object=kind,
        created=created,
        model=job.model_name,
        choices=_EMPTY,
        usage=usage_of(tokens),
    )
    return PREFIX + msgspec.json.encode(last) + b"\n\n"
