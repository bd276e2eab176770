"""What a request asks of an engine, in the one language of the middle, and as an engine hears it.

Every engine here speaks OpenAI's HTTP; what one can do beyond it, it declares as capabilities.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from serving.contract.ids import moment_of
from serving.engine.errors import Reason
from serving.engine.reading import Reading, StreamReading, WholeReading
from serving.engine.vectors import VectorReading

_encode = msgspec.json.Encoder().encode

Operation = Literal["chat", "completions", "embeddings"]
Feature = Literal["plain", "tools", "format", "logprobs"]
"""The part of an engine that a request puts to work beside generating."""

PATHS: dict[Operation, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
}
"""An engine serves many more routes; a gateway never calls them."""

WHOLE_INTERVAL_TOKENS = 16
"""A whole answer is asked for as a stream of chunks of this many tokens, the first token alone.

An abort leaves at most one less unbilled. See docs/decisions/0008-whole-answers-are-streams.md.
"""

BYTES_READ_PER_MS = 64
"""16,000 tokens a second: what an engine is thought to read, to tell when a request is due."""


@dataclass(frozen=True, slots=True)
class Grammars:
    """JSON Schemas, as text, that an engine compiles for an answer to hold to, the names of their
    fields, and the digest of all."""

    params: tuple[str, ...]
    schemas: tuple[str, ...]
    digest: bytes


@dataclass(frozen=True, slots=True)
class Work:
    """`fields` are the body as a JSON object without its last brace, in pieces: the adapter adds
    its own, and what may be long is not copied. `choices` counts prompts times answers: none where
    vectors are made.

    With `is_streamed` somebody reads each token as it comes.
    """

    operation: Operation
    fields: tuple[bytes, ...]
    is_streamed: bool
    may_call_tools: bool
    feature: Feature
    choices: int
    prompts: int
    output_tokens_max: int
    grammars: Grammars | None = None
    needs: Mapping[str, Reason] = field(default_factory=dict)
    """Features that the engine must have, and as what their lack is refused."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What is sent to one replica, its body in pieces, and how its answer is read; `streams` tells
    how it comes."""

    path: str
    body: tuple[bytes, ...]
    streams: bool
    reading: Reading


def write(
    work: Work,
    *,
    served_name: str,
    capabilities: Collection[str],
    cache_salt: str,
    request_id: str,
) -> EngineRequest:
    """Return the request for a replica with these capabilities."""
    ours: dict[str, Any] = {"model": served_name}
    if "cache_salt" in capabilities:
        ours["cache_salt"] = cache_salt
    echoed_id = request_id if "request_id" in capabilities else None
    if work.operation == "embeddings":
        # A quarter of what the numbers take as text, and written in a tenth of the time.
        ours["encoding_format"] = "base64"
        if "priority" in capabilities:
            ours["priority"] = _due_ms(work, request_id)
        return _request(work, ours, streams=False, reading=VectorReading(work.prompts, echoed_id))
    streams = work.is_streamed or not work.may_call_tools
    ours |= {"max_tokens": work.output_tokens_max, "stream": streams}
    if streams:
        ours["stream_options"] = _stream_options(capabilities)
    if streams and not work.is_streamed and "stream_interval" in capabilities:
        ours["stream_interval"] = WHOLE_INTERVAL_TOKENS
    if streams and work.may_call_tools and "token_ids" in capabilities:
        # Without them nothing comes, not even usage, while a call is read that goes out in one.
        ours["return_token_ids"] = True
    reading: Reading = (
        StreamReading(choices=work.choices, prompts=work.prompts, request_id=echoed_id)
        if streams
        else WholeReading(echoed_id)
    )
    return _request(work, ours, streams=streams, reading=reading)


def _due_ms(work: Work, request_id: str) -> int:
    """Return by when an engine should have read a request, in milliseconds since 1970: a batch is
    many sequences at once, and smaller requests that come after it go first, though not for ever.
    """
    arrived_ms = int(moment_of(request_id).timestamp() * 1_000)
    return arrived_ms + sum(map(len, work.fields)) // BYTES_READ_PER_MS


def _request(work: Work, ours: dict[str, Any], *, streams: bool, reading: Reading) -> EngineRequest:
    rest = b"," + _encode(ours)[1:]
    return EngineRequest(PATHS[work.operation], (*work.fields, rest), streams, reading)


def _stream_options(capabilities: Collection[str]) -> dict[str, bool]:
    options = {"include_usage": True}
    if "continuous_usage" in capabilities:
        options["continuous_usage_stats"] = True
    return options
