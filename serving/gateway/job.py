"""From a request as the client wrote it to the work an engine is given, and its worst case."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from serving.contract.price import worst_case_nanos
from serving.contract.records import ModelRecord
from serving.gateway.errors import BadRequest
from serving.gateway.price_list import Schedule
from serving.gateway.schema import chat, completions
from serving.gateway.schema.decode import invalid

TEMPLATE_TOKENS_MAX = 4_096
"""The most that a chat template adds of its own: role marks, tool instructions, dates."""

ENGINE_STREAM_OPTIONS = {"include_usage": True, "continuous_usage_stats": True}
WHOLE_INTERVAL_TOKENS = 16
"""A whole answer is asked for as a stream of chunks of this many tokens, the first token alone.

An abort leaves at most one less unbilled. See docs/decisions/0008-whole-answers-are-streams.md.
"""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route that generates: what it decodes to and where an engine takes it."""

    name: str
    path: str
    id_prefix: str
    operation: str
    decode: Callable[[bytes], Any]
    check: Callable[[Any, ModelRecord], None]
    engine_body: Callable[[Any], dict[str, Any]]
    asked_output_tokens: Callable[[Any], tuple[str, int | None]]
    known_prompt_tokens: Callable[[Any], int]
    prompt_count: Callable[[Any], int]
    may_call_tools: Callable[[Any], bool]


CHAT = Endpoint(
    name="chat.completions",
    path="/v1/chat/completions",
    id_prefix="chatcmpl-",
    operation="chat",
    decode=chat.decode,
    check=chat.check,
    engine_body=chat.for_engine_body,
    asked_output_tokens=chat.asked_output_tokens,
    known_prompt_tokens=lambda _: 0,
    prompt_count=lambda _: 1,
    may_call_tools=chat.may_call_tools,
)
COMPLETIONS = Endpoint(
    name="completions",
    path="/v1/completions",
    id_prefix="cmpl-",
    operation="text_completion",
    decode=completions.decode,
    check=completions.check,
    engine_body=completions.for_engine_body,
    asked_output_tokens=completions.asked_output_tokens,
    known_prompt_tokens=completions.known_prompt_tokens,
    prompt_count=completions.prompt_count,
    may_call_tools=lambda _: False,
)


class Job(msgspec.Struct, frozen=True):
    """What one request asks of an engine. `choices` counts prompts times answers each.

    `streamed` is what the client gets, `engine_streams` what the engine is asked for.
    """

    endpoint: Endpoint
    model: ModelRecord
    model_name: str
    body: bytes
    streamed: bool
    engine_streams: bool
    wants_usage: bool
    choices: int
    prompts: int
    prompt_tokens_max: int
    output_tokens_max: int

    def worst_case_nanos(self, schedule: Schedule) -> int:
        """Return the most that the job can cost, in the dearest band it can reach."""
        return worst_case_nanos(
            schedule,
            prompt_bytes=self.prompt_tokens_max,
            context_tokens=self.model.context_tokens * self.prompts,
            output_tokens_max=self.output_tokens_max,
            choices=self.choices,
        )


def prepare(
    endpoint: Endpoint, request: Any, *, body_bytes: int, model: ModelRecord, cache_salt: str
) -> Job:
    """Check the request against its model and rebuild it for the engine. Raises BadRequest."""
    endpoint.check(request, model)
    output_tokens = _output_tokens(endpoint, request, model)
    streamed, options = bool(request.stream), request.stream_options
    engine_streams = streamed or not endpoint.may_call_tools(request)
    body = endpoint.engine_body(request)
    body |= {
        "model": model.variant_id,
        "max_tokens": output_tokens,
        "stream": engine_streams,
        "cache_salt": cache_salt,
    }
    if engine_streams:
        body["stream_options"] = ENGINE_STREAM_OPTIONS
    if engine_streams and not streamed:
        body["stream_interval"] = WHOLE_INTERVAL_TOKENS
    prompts = endpoint.prompt_count(request)
    return Job(
        endpoint=endpoint,
        model=model,
        model_name=request.model,
        body=msgspec.json.encode(body),
        streamed=streamed,
        engine_streams=engine_streams,
        wants_usage=bool(options and options.include_usage),
        choices=prompts * (request.n or 1),
        prompts=prompts,
        prompt_tokens_max=body_bytes + TEMPLATE_TOKENS_MAX,
        output_tokens_max=output_tokens,
    )


def context_exceeded(context_tokens: int, param: str | None = "messages") -> BadRequest:
    """Return the error for a prompt and answer that do not fit together."""
    message = (
        f"This model's maximum context length is {context_tokens} tokens."
        " Your messages and the completion asked for are longer than that."
    )
    return BadRequest(message, code="context_length_exceeded", param=param)


def _output_tokens(endpoint: Endpoint, request: Any, model: ModelRecord) -> int:
    """Return the `max_tokens` for the engine, which cuts it to what the context leaves."""
    name, asked = endpoint.asked_output_tokens(request)
    prompt_tokens = endpoint.known_prompt_tokens(request)
    if prompt_tokens + (asked or 1) > model.context_tokens:
        raise context_exceeded(model.context_tokens, name if asked else "prompt")
    if asked is not None and asked > model.output_tokens_max:
        raise invalid(name, f"this model gives at most {model.output_tokens_max} tokens")
    output_tokens: int = asked or model.output_tokens_max
    if request.min_tokens is not None and request.min_tokens > output_tokens:
        raise invalid("min_tokens", f"at most {output_tokens}")
    return output_tokens
