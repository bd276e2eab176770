"""A request to an engine, and how one replica is asked, also to count a prompt's tokens."""

from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from serving.contract.codec import NOT_JSON
from serving.contract.grammar import FORMAT_BLANKS_MAX
from serving.contract.ids import moment_of
from serving.contract.replica import STRUCTURAL_TAG
from serving.contract.text_guard import TextGuard
from serving.engine.embedding_parser import EmbeddingParser
from serving.engine.errors import InvalidEngineResponse, Reason
from serving.engine.response_parser import ResponseParser, StreamParser
from serving.engine.text_guard import guarded

_encode = msgspec.json.Encoder().encode
NO_TOKENS = TextGuard()
"""Of an engine without control tokens."""

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

An abort leaves at most one less unbilled. See docs/decisions/0005-streaming-engine-calls.md.
"""

BYTES_READ_PER_MS = 64
"""16,000 tokens a second: what an engine is thought to read, to tell when a request is due."""


class RequestGrammars(msgspec.Struct, frozen=True):
    """JSON Schemas, as text, that an engine compiles for an answer to hold to, the names of their
    fields, and the digest of all."""

    params: tuple[str, ...]
    schemas: tuple[str, ...]
    digest: bytes


class AnswerFormat(msgspec.Struct, frozen=True):
    """What an answer is held to: OpenAI's `response_format` as JSON, and the schema in it."""

    response_format: bytes
    schema: bytes


class EngineRequest(msgspec.Struct, frozen=True):
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
    grammars: RequestGrammars | None = None
    answer_format: AnswerFormat | None = None
    tool_words: tuple[str, ...] = ()
    """Of its tools: what is not marked, and might hold a control token."""
    needs: Mapping[str, Reason] = msgspec.field(default_factory=dict)
    """Features that the engine must have, and as what their lack is refused."""


class EngineHttpRequest(msgspec.Struct, frozen=True):
    """What is sent to one replica, its body in pieces, and how its answer is read;
    `is_streamed` tells how it comes."""

    path: str
    body: tuple[bytes, ...]
    is_streamed: bool
    parser: ResponseParser


def engine_headers(token: str, request_id: str, traceparent: str | None = None) -> dict[str, str]:
    """Return all that an engine and its node hear besides the body: nothing of a client's headers.
    Without a node there is no token."""
    # vLLM makes its own ids from this one, so that its log lines can be found by ours.
    headers = {"x-request-id": request_id}
    if token:
        headers["authorization"] = f"Bearer {token}"
    if traceparent is not None:
        headers["traceparent"] = traceparent
    return headers


def write(
    engine_request: EngineRequest,
    *,
    served_name: str,
    capabilities: Collection[str],
    cache_salt: str,
    request_id: str,
    text_guard: TextGuard | None = NO_TOKENS,
) -> EngineHttpRequest:
    """Return the request for a replica with these capabilities. Raises ControlToken."""
    ours: dict[str, Any] = {"model": served_name}
    if "cache_salt" in capabilities:
        ours["cache_salt"] = cache_salt
    echoed_id = request_id if "request_id" in capabilities else None
    if engine_request.operation == "embeddings":
        # A quarter of what the numbers take as text, and written in a tenth of the time.
        ours["encoding_format"] = "base64"
        if "priority" in capabilities:
            ours["priority"] = _due_ms(engine_request, request_id)
        vectors = EmbeddingParser(engine_request.prompts, echoed_id)
        return _request(
            engine_request, engine_request.fields, ours, is_streamed=False, parser=vectors
        )
    fields = text_fields(engine_request, text_guard)
    ours |= {"max_tokens": engine_request.output_tokens_max, "stream": True}
    ours["stream_options"] = _stream_options(capabilities)
    if not engine_request.is_streamed and "stream_interval" in capabilities:
        ours["stream_interval"] = WHOLE_INTERVAL_TOKENS
    if engine_request.may_call_tools and "token_ids" in capabilities:
        # Without them nothing comes, not even usage, while a call is read that goes out in one.
        ours["return_token_ids"] = True
    if engine_request.answer_format is not None:
        ours["response_format"] = _response_format(engine_request.answer_format, capabilities)
    reading = StreamParser(
        choices=engine_request.choices,
        prompts=engine_request.prompts,
        may_call_tools=engine_request.may_call_tools,
        request_id=echoed_id,
    )
    return _request(engine_request, fields, ours, is_streamed=True, parser=reading)


def _due_ms(engine_request: EngineRequest, request_id: str) -> int:
    """Return by when an engine should have read a request, in milliseconds since 1970: a batch is
    many sequences at once, and smaller requests that come after it go first, though not for ever.
    """
    arrived_ms = int(moment_of(request_id).timestamp() * 1_000)
    return arrived_ms + sum(map(len, engine_request.fields)) // BYTES_READ_PER_MS


def text_fields(engine_request: EngineRequest, text_guard: TextGuard | None) -> tuple[bytes, ...]:
    """Return the work's own fields as a replica takes them: a chat's text is marked, the prompt of
    completions is the client's own. Raises ControlToken."""
    if engine_request.operation != "chat":
        return engine_request.fields
    return guarded(engine_request.fields, engine_request.tool_words, text_guard)


def _request(
    engine_request: EngineRequest,
    fields: tuple[bytes, ...],
    ours: dict[str, Any],
    *,
    is_streamed: bool,
    parser: ResponseParser,
) -> EngineHttpRequest:
    rest = b"," + _encode(ours)[1:]
    return EngineHttpRequest(PATHS[engine_request.operation], (*fields, rest), is_streamed, parser)


def _response_format(asked: AnswerFormat, capabilities: Collection[str]) -> Any:
    """Return the format with its blanks bounded, where an engine knows how to say that."""
    if STRUCTURAL_TAG not in capabilities:
        return msgspec.Raw(asked.response_format)
    form = {
        "type": "json_schema",
        "json_schema": msgspec.Raw(asked.schema),
        "max_whitespace_cnt": FORMAT_BLANKS_MAX,
    }
    return {"type": "structural_tag", "format": form}


def _stream_options(capabilities: Collection[str]) -> dict[str, bool]:
    options = {"include_usage": True}
    if "continuous_usage" in capabilities:
        options["continuous_usage_stats"] = True
    return options


TOKENIZE_PATH = "/tokenize"
TOKENIZE_ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""It names each token."""


class TokenizeRequest(msgspec.Struct, frozen=True):
    """What is sent to one replica, its body in pieces."""

    path: str
    body: tuple[bytes, ...]


class _Counted(msgspec.Struct):
    count: int


class _Prompt(msgspec.Struct):
    prompt: str | list[Any]


_decode_count = msgspec.json.Decoder(_Counted).decode
_decode_prompt = msgspec.json.Decoder(_Prompt).decode


def write_count(
    engine_request: EngineRequest, *, served_name: str, text_guard: TextGuard | None = NO_TOKENS
) -> TokenizeRequest:
    """Return the request for a replica that can count, about a chat. Raises ControlToken."""
    rest = b"," + _encode({"model": served_name})[1:]
    return TokenizeRequest(TOKENIZE_PATH, (*text_fields(engine_request, text_guard), rest))


def write_counts(
    engine_request: EngineRequest, *, served_name: str, text_guard: TextGuard | None = NO_TOKENS
) -> tuple[int, list[TokenizeRequest]]:
    """Return how many tokens the client counted itself, and the requests that count the rest: one
    for a chat or for each text of completions."""
    if engine_request.operation == "chat":
        return 0, [write_count(engine_request, served_name=served_name, text_guard=text_guard)]
    prompt = _decode_prompt(b"".join((*engine_request.fields, b"}"))).prompt
    prompts = prompt if isinstance(prompt, list) else [prompt]
    ids = [one for one in prompts if not isinstance(one, str)]
    known = sum(len(one) if isinstance(one, list) else 1 for one in ids)
    return known, [
        TokenizeRequest(TOKENIZE_PATH, (_encode({"model": served_name, "prompt": text}),))
        for text in prompts
        if isinstance(text, str)
    ]


def read_count(answer: bytes) -> int:
    """Return the count. Raises InvalidEngineResponse."""
    try:
        return _decode_count(answer).count
    except NOT_JSON as error:
        raise InvalidEngineResponse("a count is malformed") from error
